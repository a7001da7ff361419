//! Storages and the views of them: how mutation and aliasing leave the program.
//!
//! A [`Storage`] has a root value, which writes replace. A tensor is a path of [`Step`]s from the root. `read` goes down the path, `write`
//! goes back up: each step puts the new elements into its parent. Order is by storage: a value that was read before a write is the old one.

use douse_core::sym::{Compare, Cond, Expr, Symbol};
use douse_core::{DType, Result, Scalar};
use douse_ir::{Value, WriteTarget, coordinates};

use super::importer::Importer;

/// A tensor of the program: a number in the importer's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tensor(pub(super) u32);

#[derive(Clone, Debug)]
pub struct Storage {
    /// What the storage holds now.
    pub root: Value,
    /// How often it was written.
    pub version: u32,
    /// Where its last content goes when the call ends.
    pub target: Option<WriteTarget>,
    /// Where the root begins in the program's own storage, in elements: a weight may be a slice of another.
    pub start: i64,
}

/// One view operation, from parent to child.
#[derive(Clone, Debug)]
pub enum Step {
    /// `child[i] = parent[map(i)]`.
    Move { shape: Vec<Expr>, map: Vec<Expr> },
    /// The same elements in row-major order.
    Reshape { shape: Vec<Expr> },
    /// The same bits, of a dtype of the same size.
    Bitcast { dtype: DType },
    /// The same bits, of a dtype of another size: the last dimension grows or shrinks.
    Repack { dtype: DType },
    /// The complex conjugate.
    Conjugate,
}

#[derive(Clone, Debug)]
pub(super) struct TensorInfo {
    pub storage: usize,
    pub path: Vec<Step>,
    /// The program's own dtype, perhaps complex.
    pub dtype: DType,
    /// The program's own strides, in elements, where it states them.
    pub strides: Option<Vec<Expr>>,
    /// The value that was read last, at that version of the storage.
    pub read: Option<(u32, Value)>,
}

impl Importer {
    pub(super) fn info(&self, t: Tensor) -> &TensorInfo {
        &self.tensors[t.0 as usize]
    }

    fn add(&mut self, info: TensorInfo) -> Tensor {
        self.tensors.push(info);
        Tensor(self.tensors.len() as u32 - 1)
    }

    /// A tensor with a storage of its own. `dtype` is the program's; the value is real.
    pub fn new_tensor(&mut self, value: Value, dtype: DType) -> Tensor {
        self.new_storage(value, dtype, None)
    }

    pub(super) fn new_storage(&mut self, root: Value, dtype: DType, target: Option<WriteTarget>) -> Tensor {
        self.storages.push(Storage { root, version: 0, target, start: 0 });
        let storage = self.storages.len() - 1;
        self.add(TensorInfo { storage, path: vec![], dtype, strides: None, read: None })
    }

    /// PyTorch's dtype of a tensor, perhaps complex.
    pub fn dtype_of(&self, t: Tensor) -> DType {
        self.info(t).dtype
    }

    pub fn is_complex(&self, t: Tensor) -> bool {
        self.info(t).dtype.is_complex()
    }

    /// What a tensor holds now. For a complex tensor, with a last dimension of 2.
    pub fn read(&mut self, t: Tensor) -> Result<Value> {
        let info = self.info(t);
        let storage = &self.storages[info.storage];
        if let Some((version, value)) = info.read {
            if version == storage.version && self.in_scope(value) {
                return Ok(value);
            }
        }
        let (version, mut value, path) = (storage.version, storage.root, info.path.clone());
        for step in &path {
            value = self.step_down(value, step)?;
        }
        self.tensors[t.0 as usize].read = Some((version, value));
        Ok(value)
    }

    /// PyTorch's shape of a tensor.
    pub fn shape_of(&mut self, t: Tensor) -> Result<Vec<Expr>> {
        let value = self.read(t)?;
        let mut shape = self.b.shape(value).to_vec();
        if self.is_complex(t) {
            shape.pop();
        }
        Ok(shape)
    }

    /// A view of a tensor. Steps are over the real value: for a complex tensor they leave the last dimension alone.
    pub fn view(&mut self, t: Tensor, step: Step) -> Result<Tensor> {
        let dtype = self.info(t).dtype;
        self.view_as(t, Some(step), dtype)
    }

    /// A view with another dtype, perhaps without a step.
    pub fn view_as(&mut self, t: Tensor, step: Option<Step>, dtype: DType) -> Result<Tensor> {
        let parent = self.read(t)?;
        let value = match &step {
            Some(step) => self.step_down(parent, step)?,
            None => parent,
        };
        let info = self.info(t);
        let mut path = info.path.clone();
        path.extend(step);
        let (storage, version) = (info.storage, self.storages[info.storage].version);
        Ok(self.add(TensorInfo { storage, path, dtype, strides: None, read: Some((version, value)) }))
    }

    /// Whether a view is the conjugate of what its storage holds.
    pub fn is_conjugate(&self, t: Tensor) -> bool {
        let turns = self.info(t).path.iter().filter(|step| matches!(step, Step::Conjugate));
        turns.count() % 2 == 1
    }

    /// Another name for the same view.
    pub fn alias(&mut self, t: Tensor) -> Tensor {
        let info = self.info(t).clone();
        self.add(info)
    }

    /// The storage of a tensor as one tensor whose row-major order is that of memory; `None` where the layout is not known.
    pub fn whole_storage(&mut self, t: Tensor) -> Option<Tensor> {
        let own = self.info(t).storage;
        let root =
            (0..self.tensors.len()).find(|i| self.tensors[*i].storage == own && self.tensors[*i].path.is_empty())?;
        let whole = Tensor(root as u32);
        let shape = self.shape_of(whole).ok()?;
        match &self.tensors[root].strides {
            None => Some(whole),
            Some(strides) if is_contiguous(&shape, strides) => Some(whole),
            // A dense layout in another order: seen in the order of memory.
            Some(strides) => {
                let strides: Option<Vec<i64>> = strides.iter().map(Expr::as_int).collect();
                let (strides, mut order) = (strides?, (0..shape.len()).collect::<Vec<_>>());
                order.sort_by_key(|d| (std::cmp::Reverse(strides[*d]), *d));
                let sorted: Vec<Expr> = order.iter().map(|d| shape[*d].clone()).collect();
                let sorted_strides: Vec<Expr> = order.iter().map(|d| Expr::int(strides[*d])).collect();
                if !is_contiguous(&sorted, &sorted_strides) {
                    return None;
                }
                self.permuted(whole, &order).ok()
            }
        }
    }

    /// Where the root of a tensor's storage begins in the program's own storage, in elements.
    pub fn storage_start(&self, t: Tensor) -> i64 {
        self.storages[self.info(t).storage].start
    }

    pub(super) fn set_storage_start(&mut self, t: Tensor, start: i64) {
        let storage = self.info(t).storage;
        self.storages[storage].start = start;
    }

    /// The program's own strides of a tensor, where it states them.
    pub fn strides_of(&self, t: Tensor) -> Option<Vec<Expr>> {
        self.info(t).strides.clone()
    }

    pub(super) fn set_strides(&mut self, t: Tensor, strides: Vec<Expr>) {
        self.tensors[t.0 as usize].strides = Some(strides);
    }

    /// A view with its dimensions in another order.
    pub fn permuted(&mut self, t: Tensor, dims: &[usize]) -> Result<Tensor> {
        let own = self.shape_of(t)?;
        let mut shape: Vec<Expr> = dims.iter().map(|d| own[*d].clone()).collect();
        let mut map = vec![Expr::int(0); dims.len()];
        for (i, d) in dims.iter().enumerate() {
            map[*d] = Expr::loop_var(i);
        }
        self.complete(t, &mut shape, &mut map);
        self.view(t, Step::Move { shape, map })
    }

    /// Adds the last dimension of a complex tensor's real value to a shape and map over its own dimensions.
    pub fn complete(&self, t: Tensor, shape: &mut Vec<Expr>, map: &mut Vec<Expr>) {
        if self.is_complex(t) {
            map.push(Expr::loop_var(shape.len()));
            shape.push(Expr::int(2));
        }
    }

    fn step_down(&mut self, parent: Value, step: &Step) -> Result<Value> {
        match step {
            Step::Move { shape, map } => self.b.remap(parent, shape.clone(), map.clone()),
            Step::Reshape { shape } => self.b.reshape(parent, shape.clone()),
            Step::Bitcast { dtype } => self.b.bitcast(parent, *dtype),
            Step::Repack { dtype } => self.repack(parent, *dtype),
            Step::Conjugate => self.conjugate(parent),
        }
    }

    /// Replaces what a tensor holds. The value has the tensor's real dtype and shape.
    pub fn write(&mut self, t: Tensor, value: Value) -> Result<()> {
        let (storage, path) = (self.info(t).storage, written_path(&self.info(t).path));
        let mut parents = vec![self.storages[storage].root];
        for step in path.iter().take(path.len().saturating_sub(1)) {
            let parent = parents[parents.len() - 1];
            parents.push(self.step_down(parent, step)?);
        }
        let mut new = value;
        for (step, parent) in path.iter().zip(&parents).rev() {
            new = self.step_up(*parent, step, new)?;
        }
        let storage = &mut self.storages[storage];
        storage.root = new;
        storage.version += 1;
        let version = storage.version;
        self.tensors[t.0 as usize].read = Some((version, value));
        Ok(())
    }

    /// The parent with the child's new elements in their places.
    fn step_up(&mut self, parent: Value, step: &Step, child: Value) -> Result<Value> {
        match step {
            Step::Reshape { .. } => {
                let shape = self.b.shape(parent).to_vec();
                self.b.reshape(child, shape)
            }
            Step::Bitcast { .. } => {
                let dtype = self.b.dtype(parent);
                self.b.bitcast(child, dtype)
            }
            Step::Repack { .. } => {
                let dtype = self.b.dtype(parent);
                self.repack(child, dtype)
            }
            Step::Conjugate => self.conjugate(child),
            Step::Move { shape, map } => self.put(parent, shape, map, child),
        }
    }

    /// `parent` with `parent[map(i)] = child[i]`: a selection where the map can be turned round, else a scatter, in which the last write wins.
    pub fn put(&mut self, parent: Value, shape: &[Expr], map: &[Expr], child: Value) -> Result<Value> {
        let Some((inverse, inside)) = invert(shape, map) else {
            return self.b.scatter(parent, child, &[], map.to_vec(), None);
        };
        let whole = self.b.shape(parent).to_vec();
        let inside = inside.simplify(&self.b.ranges().with_loops(&whole));
        let spread = self.b.move_(child, &[], whole.clone(), inverse, inside.clone(), Scalar::Int(0))?;
        if inside.as_bool() == Some(true) {
            return Ok(spread);
        }
        let yes = self.b.full(DType::Bool, vec![], Scalar::Bool(true));
        let mask = self.b.move_(yes, &[], whole, vec![], inside, Scalar::Bool(false))?;
        self.b.select(mask, spread, parent)
    }
}

/// The path with each move whose elements may overlap, as windows do, made one with the move after it: what that leaves out is not written.
fn written_path(path: &[Step]) -> Vec<Step> {
    let mut own: Vec<Step> = Vec::with_capacity(path.len());
    for step in path {
        let Step::Move { shape, map } = step else {
            own.push(step.clone());
            continue;
        };
        match own.last_mut() {
            Some(Step::Move { shape: outer, map: from }) if invert(outer, from).is_none() => {
                let at = |symbol| match symbol {
                    Symbol::Loop(i) => map.get(i as usize).cloned(),
                    _ => None,
                };
                *from = from.iter().map(|e| e.substitute(&at)).collect();
                outer.clone_from(shape);
            }
            _ => own.push(step.clone()),
        }
    }
    own
}

/// For a map in which each coordinate of the child gives one coordinate of the parent (`start + step * i`, a step of 1 or more, or -1): the map from parent to
/// child, and the condition that a parent's element is in the child.
fn invert(shape: &[Expr], map: &[Expr]) -> Option<(Vec<Expr>, Cond)> {
    let mut inverse: Vec<Option<Expr>> = vec![None; shape.len()];
    let mut inside = Cond::Bool(true);
    let zero = Expr::int(0);
    for (d, expr) in map.iter().enumerate() {
        let at = Expr::loop_var(d);
        let mut loops = Vec::new();
        expr.visit(&mut |s| {
            if let Symbol::Loop(i) = s {
                loops.push(i as usize);
            }
        });
        match loops.as_slice() {
            [] => inside = inside.and(&Cond::compare(Compare::Eq, &at, expr)),
            [i] => {
                let (step, start) = expr.affine(Symbol::Loop(*i as u32))?;
                let from_start = &at - &start;
                let index = match step.as_int()? {
                    1 => from_start,
                    -1 => -&from_start,
                    step if step > 1 => {
                        let rest = from_start.modulo(&Expr::int(step));
                        inside = inside.and(&Cond::compare(Compare::Eq, &rest, &zero));
                        from_start.floor_div(&Expr::int(step))
                    }
                    _ => return None,
                };
                inside = inside.and(&Cond::compare(Compare::Ge, &index, &zero)).and(&Cond::compare(
                    Compare::Lt,
                    &index,
                    &shape[*i],
                ));
                if inverse[*i].replace(index).is_some() {
                    return None;
                }
            }
            _ => return None,
        }
    }
    let filled = inverse
        .into_iter()
        .zip(shape)
        .map(|(e, size)| e.or_else(|| size.is_int(1).then(|| zero.clone())))
        .collect::<Option<Vec<_>>>()?;
    debug_assert_eq!(coordinates(shape.len()).len(), filled.len());
    Some((filled, inside))
}

/// Row-major strides of a shape.
pub fn contiguous_strides(shape: &[Expr]) -> Vec<Expr> {
    let mut strides = vec![Expr::int(1); shape.len()];
    for d in (0..shape.len().saturating_sub(1)).rev() {
        let size = if shape[d + 1].is_int(0) { Expr::int(1) } else { shape[d + 1].clone() };
        strides[d] = &strides[d + 1] * &size;
    }
    strides
}

/// Whether strides are row-major, in dimensions whose size is not 1.
pub fn is_contiguous(shape: &[Expr], strides: &[Expr]) -> bool {
    if shape.iter().any(|s| s.is_int(0)) {
        return true;
    }
    let wanted = contiguous_strides(shape);
    shape.iter().zip(strides).zip(&wanted).all(|((size, stride), wanted)| size.is_int(1) || stride == wanted)
}

/// Whether a tensor of these sizes and strides can be seen under another shape without a copy (as `Tensor.view` asks).
pub fn can_view(shape: &[Expr], strides: &[Expr], to: &[Expr]) -> bool {
    if shape == to || shape.iter().any(|s| s.is_int(0)) {
        return true;
    }
    // Runs of dimensions that lie in memory as one: (size, stride of its last dimension).
    let mut runs: Vec<(Expr, Expr)> = Vec::new();
    for (size, stride) in shape.iter().zip(strides) {
        if size.is_int(1) {
            continue;
        }
        match runs.last_mut() {
            Some((run, last)) if *last == size * stride => {
                *run = &*run * size;
                *last = stride.clone();
            }
            _ => runs.push((size.clone(), stride.clone())),
        }
    }
    let mut wanted = to.iter().filter(|s| !s.is_int(1));
    for (run, _) in &runs {
        let mut product = Expr::int(1);
        while product != *run {
            match wanted.next() {
                Some(size) => product = &product * size,
                None => return false,
            }
            if let (Some(p), Some(r)) = (product.as_int(), run.as_int()) {
                if p > r {
                    return false;
                }
            }
        }
    }
    wanted.next().is_none()
}
