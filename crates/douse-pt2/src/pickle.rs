//! A pickle machine for plain data: numbers, strings, tuples, lists, dicts and tensors. It calls nothing; whatever
//! would need Python is refused by name.

use crate::pickle_global::{self, Global};
use crate::tensor::{Storage, TensorData};
use douse_core::{DType, Error, Result};
use indexmap::IndexMap;

/// What a pickle holds. Tuples and lists are both `List`.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    Tensor(TensorData),
    /// Something that is data but no argument of a program: a dtype, a device.
    Other(&'static str),
}

/// Nesting of what a pickle holds.
const MAX_DEPTH: usize = 100;

/// Index of an object of the machine.
type Id = usize;

/// An object while it is made. Lists and dicts grow after others refer to them, hence the indices.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Global),
    /// A storage, and the type of its elements (`None`: bytes).
    Storage(Option<DType>, Storage),
    Tensor(Box<TensorData>),
    Device,
}

/// Finds a storage: its key in the archive, and the bytes it must hold at least.
pub(crate) type Storages<'a> = dyn FnMut(&str, usize) -> Result<Storage> + 'a;

/// Reads a pickle of protocol 2 to 5.
///
/// # Errors
/// When the pickle is damaged, or needs something that only Python can make.
pub(crate) fn read(bytes: &[u8], storages: &mut Storages<'_>) -> Result<Value> {
    let mut machine = Machine {
        input: bytes,
        at: 0,
        objects: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: IndexMap::new(),
        storages,
    };
    let top = machine.run()?;
    // Shared objects are written out at each place they stand: bounded, so that doubling does not fill the memory.
    let mut budget = bytes.len().saturating_mul(4).saturating_add(1024);
    machine.value(top, MAX_DEPTH, &mut budget)
}

struct Machine<'a> {
    input: &'a [u8],
    at: usize,
    objects: Vec<Object>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: IndexMap<u64, Id>,
    storages: &'a mut Storages<'a>,
}

fn damaged(what: &str) -> Error {
    Error::invalid_program(format!("the pickle is damaged: {what}"))
}

impl<'a> Machine<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let Some(bytes) = rest.get(..len) else { return Err(damaged("it ends too soon")) };
        self.at += len;
        Ok(bytes)
    }

    /// A little-endian number of up to 8 bytes.
    fn number(&mut self, len: usize) -> Result<u64> {
        Ok(self.bytes(len)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn text(&mut self, length_bytes: usize) -> Result<String> {
        let len = usize::try_from(self.number(length_bytes)?).unwrap_or(usize::MAX);
        let bytes = self.bytes(len)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| damaged("a text is not UTF-8"))
    }

    fn line(&mut self) -> Result<&'a str> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let Some(len) = rest.iter().position(|byte| *byte == b'\n') else { return Err(damaged("it ends too soon")) };
        let line = self.bytes(len)?;
        self.at += 1;
        std::str::from_utf8(line).map_err(|_| damaged("a name is not UTF-8"))
    }

    fn push(&mut self, object: Object) {
        self.stack.push(self.objects.len());
        self.objects.push(object);
    }

    fn pop(&mut self) -> Result<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(damaged("it takes what it has not put"));
        }
        self.stack.pop().ok_or_else(|| damaged("it takes what it has not put"))
    }

    /// Everything above the last mark, which goes too.
    fn pop_mark(&mut self) -> Result<Vec<Id>> {
        let mark = self.marks.pop().ok_or_else(|| damaged("a mark is missing"))?;
        if mark > self.stack.len() {
            return Err(damaged("a mark is out of place"));
        }
        Ok(self.stack.split_off(mark))
    }

    fn top(&self) -> Result<Id> {
        self.stack.last().copied().ok_or_else(|| damaged("it takes what it has not put"))
    }

    fn object(&self, id: Id) -> Result<&Object> {
        self.objects.get(id).ok_or_else(|| damaged("it refers to nothing"))
    }

    fn tuple(&mut self, len: usize) -> Result<()> {
        let mut items = Vec::with_capacity(len);
        for _ in 0..len {
            items.push(self.pop()?);
        }
        items.reverse();
        self.push(Object::Tuple(items));
        Ok(())
    }

    fn memoize(&mut self, key: u64) -> Result<()> {
        let top = self.top()?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(&mut self, key: u64) -> Result<()> {
        let id = *self.memo.get(&key).ok_or_else(|| damaged("it refers to nothing"))?;
        self.stack.push(id);
        Ok(())
    }

    fn append(&mut self, items: Vec<Id>) -> Result<()> {
        let top = self.top()?;
        match self.objects.get_mut(top) {
            Some(Object::List(list)) => list.extend(items),
            _ => return Err(damaged("it appends to what is no list")),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[Id]) -> Result<()> {
        let top = self.top()?;
        let Some(Object::Dict(dict)) = self.objects.get_mut(top) else {
            return Err(damaged("it sets items of what is no dict"));
        };
        for pair in items.chunks(2) {
            let [key, value] = pair else { return Err(damaged("a key has no value")) };
            dict.push((*key, *value));
        }
        Ok(())
    }

    /// Runs to the end and gives the object that the pickle is.
    fn run(&mut self) -> Result<Id> {
        loop {
            let opcode = self.bytes(1)?.first().copied().unwrap_or_default();
            match opcode {
                // PROTO, FRAME
                0x80 => {
                    self.bytes(1)?;
                }
                0x95 => {
                    self.bytes(8)?;
                }
                b'.' => return self.pop(),
                b'(' => self.marks.push(self.stack.len()),
                b'0' => {
                    self.pop()?;
                }
                b'1' => {
                    self.pop_mark()?;
                }
                b'2' => {
                    let top = self.top()?;
                    self.stack.push(top);
                }
                b'N' => self.push(Object::None),
                0x88 => self.push(Object::Bool(true)),
                0x89 => self.push(Object::Bool(false)),
                b'J' => {
                    let number = self.number(4)? as u32 as i32;
                    self.push(Object::Int(number.into()));
                }
                b'K' => {
                    let number = self.number(1)?;
                    self.push(Object::Int(number as i64));
                }
                b'M' => {
                    let number = self.number(2)?;
                    self.push(Object::Int(number as i64));
                }
                0x8a => self.long()?,
                b'G' => {
                    let bits = self.number(8)?.swap_bytes();
                    self.push(Object::Float(f64::from_bits(bits)));
                }
                0x8c => self.push_text(1)?,
                b'X' => self.push_text(4)?,
                0x8d => self.push_text(8)?,
                b')' => self.tuple(0)?,
                0x85 => self.tuple(1)?,
                0x86 => self.tuple(2)?,
                0x87 => self.tuple(3)?,
                b't' => {
                    let items = self.pop_mark()?;
                    self.push(Object::Tuple(items));
                }
                b']' => self.push(Object::List(Vec::new())),
                b'l' => {
                    let items = self.pop_mark()?;
                    self.push(Object::List(items));
                }
                b'a' => {
                    let item = self.pop()?;
                    self.append(vec![item])?;
                }
                b'e' => {
                    let items = self.pop_mark()?;
                    self.append(items)?;
                }
                b'}' => self.push(Object::Dict(Vec::new())),
                b'd' => {
                    let items = self.pop_mark()?;
                    self.push(Object::Dict(Vec::new()));
                    self.set_items(&items)?;
                }
                b's' => {
                    let value = self.pop()?;
                    let key = self.pop()?;
                    self.set_items(&[key, value])?;
                }
                b'u' => {
                    let items = self.pop_mark()?;
                    self.set_items(&items)?;
                }
                b'q' => {
                    let key = self.number(1)?;
                    self.memoize(key)?;
                }
                b'r' => {
                    let key = self.number(4)?;
                    self.memoize(key)?;
                }
                0x94 => self.memoize(self.memo.len() as u64)?,
                b'h' => {
                    let key = self.number(1)?;
                    self.recall(key)?;
                }
                b'j' => {
                    let key = self.number(4)?;
                    self.recall(key)?;
                }
                b'c' => {
                    let (module, name) = (self.line()?, self.line()?);
                    self.push(Object::Global(pickle_global::find(module, name)?));
                }
                0x93 => {
                    let (name, module) = (self.pop()?, self.pop()?);
                    let global = match (self.object(module)?, self.object(name)?) {
                        (Object::Str(module), Object::Str(name)) => pickle_global::find(module, name)?,
                        _ => return Err(damaged("a name is no text")),
                    };
                    self.push(Object::Global(global));
                }
                b'R' => {
                    let (arguments, callee) = (self.pop()?, self.pop()?);
                    let made = self.call(callee, arguments)?;
                    self.push(made);
                }
                b'b' => {
                    // What Python would set on the object: the state dict's version numbers, of no use here.
                    self.pop()?;
                    let top = self.top()?;
                    if !matches!(self.object(top)?, Object::Dict(_)) {
                        return Err(Error::not_supported("the pickle sets attributes, which only Python can do"));
                    }
                }
                b'Q' => {
                    let id = self.pop()?;
                    let storage = self.storage(id)?;
                    self.push(storage);
                }
                other => {
                    let message = format!("the pickle uses instruction 0x{other:02x}, which plain data does not need");
                    return Err(Error::not_supported(message));
                }
            }
        }
    }

    fn push_text(&mut self, length_bytes: usize) -> Result<()> {
        let text = self.text(length_bytes)?;
        self.push(Object::Str(text));
        Ok(())
    }

    /// A number of any length, of which those that fit 64 bits are plain.
    fn long(&mut self) -> Result<()> {
        let len = self.number(1)? as usize;
        if len > 8 {
            return Err(Error::not_supported("the pickle holds a number of more than 64 bits"));
        }
        let number = self.number(len)?;
        let unused = 64 - 8 * len as u32;
        let number = if len == 0 { 0 } else { (number as i64) << unused >> unused };
        self.push(Object::Int(number));
        Ok(())
    }

    /// `("storage", type, key, device, elements)`.
    fn storage(&mut self, id: Id) -> Result<Object> {
        let Object::Tuple(items) = self.object(id)? else { return Err(damaged("a storage is not named by a tuple")) };
        let [_, kind, key, _, elements, ..] = items.as_slice() else {
            return Err(damaged("a storage is not named by five items"));
        };
        let (Object::Global(Global::Storage(dtype)), Object::Str(key), Object::Int(elements)) =
            (self.object(*kind)?, self.object(*key)?, self.object(*elements)?)
        else {
            return Err(damaged("a storage is not named by its type, key and size"));
        };
        let (dtype, key) = (*dtype, key.clone());
        let size = dtype.map_or(1, DType::size);
        let bytes = usize::try_from(*elements).ok().and_then(|elements| elements.checked_mul(size));
        let bytes = bytes.ok_or_else(|| damaged("a storage has an impossible size"))?;
        Ok(Object::Storage(dtype, (self.storages)(&key, bytes)?))
    }

    fn call(&self, callee: Id, arguments: Id) -> Result<Object> {
        let Object::Global(global) = self.object(callee)? else { return Err(damaged("it calls what is no function")) };
        let Object::Tuple(ids) = self.object(arguments)? else { return Err(damaged("arguments are no tuple")) };
        pickle_global::call(*global, &pickle_global::gather(ids, self)?, self)
    }

    fn value(&self, id: Id, depth: usize, budget: &mut usize) -> Result<Value> {
        if depth == 0 {
            return Err(Error::not_supported(format!("the pickle nests deeper than {MAX_DEPTH}")));
        }
        *budget = budget.checked_sub(1).ok_or_else(|| damaged("it repeats itself without end"))?;
        Ok(match self.object(id)? {
            Object::None => Value::None,
            Object::Bool(value) => Value::Bool(*value),
            Object::Int(value) => Value::Int(*value),
            Object::Float(value) => Value::Float(*value),
            Object::Str(value) => {
                *budget = budget.saturating_sub(value.len());
                Value::Str(value.clone())
            }
            Object::Tuple(items) | Object::List(items) => {
                let mut values = Vec::new();
                for item in items {
                    values.push(self.value(*item, depth - 1, budget)?);
                }
                Value::List(values)
            }
            Object::Dict(items) => {
                let mut pairs = Vec::new();
                for (key, value) in items {
                    pairs.push((self.value(*key, depth - 1, budget)?, self.value(*value, depth - 1, budget)?));
                }
                Value::Dict(pairs)
            }
            Object::Tensor(tensor) => {
                *budget = budget.saturating_sub(tensor.sizes().len());
                Value::Tensor((**tensor).clone())
            }
            Object::Global(Global::DType(_)) => Value::Other("a dtype"),
            Object::Global(_) => Value::Other("a class or function"),
            Object::Storage(..) => Value::Other("a storage"),
            Object::Device => Value::Other("a device"),
        })
    }
}

/// What the calls of a pickle look things up in.
pub(crate) trait Objects {
    fn get(&self, id: usize) -> Result<&Object>;
}

impl Objects for Machine<'_> {
    fn get(&self, id: usize) -> Result<&Object> {
        self.object(id)
    }
}
