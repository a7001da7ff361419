//! Modules, graphs, values and nodes.

use std::fmt;

use douse_core::DType;
use douse_core::bytes::Bytes;
use douse_core::sym::{Cond, Expr, Ranges, Symbol};
use douse_program::plan::{Fixed, SymbolInfo};

use crate::op::Op;

/// A tensor that a node defines, or a parameter of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A node's number in [`Graph::nodes`]; it says nothing of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// A number in [`Module::origins`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OriginId(pub u32);

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    pub dtype: DType,
    pub shape: Vec<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub op: Op,
    pub operands: Vec<Value>,
    pub results: Vec<Value>,
    pub origin: OriginId,
}

/// Where a node comes from in the exported program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The exported node's name: `add_3`.
    pub node: String,
    /// Its operator: `aten.add.Tensor`.
    pub target: String,
    /// The user's line: `policy.py:12: x = x + 1`.
    pub line: Option<String>,
}

/// Nodes in the order they run, and what they give.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    pub params: Vec<Value>,
    pub nodes: Vec<NodeId>,
    pub results: Vec<Value>,
    /// Whether a node in it has an effect.
    pub has_effect: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub values: Vec<ValueInfo>,
    pub nodes: Vec<Node>,
}

impl Graph {
    pub fn info(&self, value: Value) -> &ValueInfo {
        &self.values[value.0 as usize]
    }

    pub fn dtype(&self, value: Value) -> DType {
        self.info(value).dtype
    }

    pub fn shape(&self, value: Value) -> &[Expr] {
        &self.info(value).shape
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    /// The node that defines each value; `None` for parameters of blocks.
    pub fn definitions(&self) -> Vec<Option<NodeId>> {
        let mut defs = vec![None; self.values.len()];
        for (i, node) in self.nodes.iter().enumerate() {
            for result in &node.results {
                defs[result.0 as usize] = Some(NodeId(i as u32));
            }
        }
        defs
    }
}

/// One method of a program, on its way from the exported program to a plan.
#[derive(Clone, Debug, Default)]
pub struct Module {
    pub name: String,
    pub symbols: Vec<SymbolInfo>,
    pub inputs: Vec<InputDecl>,
    pub states: Vec<StateDecl>,
    pub constants: Vec<Constant>,
    pub graph: Graph,
    pub body: Block,
    pub outputs: Vec<OutputDecl>,
    pub writes: Vec<Write>,
    /// Texts of checks.
    pub messages: Vec<String>,
    pub origins: Vec<Origin>,
    /// Number of random draws.
    pub draws: u32,
    pub in_spec: Option<String>,
    pub out_spec: Option<String>,
}

#[derive(Clone, Debug)]
pub struct InputDecl {
    pub name: String,
    pub kind: InputKind,
}

#[derive(Clone, Debug)]
pub enum InputKind {
    /// `dtype` and `sizes` are PyTorch's own (perhaps complex); `strides` is the exported layout.
    Tensor {
        dtype: DType,
        sizes: Vec<Expr>,
        strides: Vec<Expr>,
    },
    /// An integer: the value of a symbol of the module.
    Int,
    /// A float or bool.
    Number(DType),
    Fixed(Fixed),
}

#[derive(Clone, Debug)]
pub struct StateDecl {
    pub name: String,
    pub dtype: DType,
    /// Elements, of the real dtype.
    pub sizes: Vec<Expr>,
    pub initial: Bytes,
}

/// A weight or constant: dense, row-major, of a real dtype.
#[derive(Clone, Debug)]
pub struct Constant {
    pub name: String,
    pub bytes: Bytes,
}

#[derive(Clone, Debug)]
pub struct OutputDecl {
    pub name: String,
    pub kind: OutputKind,
}

#[derive(Clone, Debug)]
pub enum OutputKind {
    /// `dtype` and `strides` are PyTorch's own (perhaps complex, as inputs).
    Tensor {
        value: Value,
        dtype: DType,
        strides: Vec<Expr>,
    },
    Int(Expr),
    Bool(Cond),
    /// The one element of a value, as a Python number.
    Number(Value),
    Fixed(Fixed),
}

/// What the program changes, at the end of a call.
#[derive(Clone, Debug)]
pub struct Write {
    pub target: WriteTarget,
    pub value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTarget {
    State(u32),
    Input(u32),
}

impl Module {
    /// What is known of the symbols' values.
    pub fn ranges(&self) -> Ranges {
        let mut ranges = Ranges::new();
        for (i, symbol) in self.symbols.iter().enumerate() {
            let max = symbol.max.map(Expr::int).or_else(|| symbol.bound.clone());
            ranges.set(Symbol::Size(i as u32), symbol.min, max);
        }
        ranges
    }

    pub fn origin(&self, id: OriginId) -> Option<&Origin> {
        self.origins.get(id.0 as usize)
    }

    /// Values that the outside reads: outputs and writes.
    pub fn roots(&self) -> impl Iterator<Item = Value> + '_ {
        let outputs = self.outputs.iter().filter_map(|o| match &o.kind {
            OutputKind::Tensor { value, .. } | OutputKind::Number(value) => Some(*value),
            _ => None,
        });
        outputs.chain(self.writes.iter().map(|w| w.value))
    }
}
