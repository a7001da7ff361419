//! A graph of the exported program: what the file says, value by value.

use crate::argument::{Argument, CustomObjArgument, NamedArgument};
use crate::meta::TensorMeta;
use crate::symbolic::{SymBool, SymFloat, SymInt};
use indexmap::IndexMap;
use serde::Deserialize;
use std::fmt;

/// A graph or subgraph. Nodes are in an order in which each stands after what it uses.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Graph {
    /// One for each input specification of the program, in the same order; for a subgraph, its operands.
    pub inputs: Vec<Argument>,
    pub outputs: Vec<Argument>,
    pub nodes: Vec<Node>,
    /// Every tensor of the graph by name, the inputs among them.
    pub tensor_values: IndexMap<String, TensorMeta>,
    pub sym_int_values: IndexMap<String, SymInt>,
    pub sym_bool_values: IndexMap<String, SymBool>,
    #[serde(default)]
    pub sym_float_values: IndexMap<String, SymFloat>,
    /// Class names of the custom objects by name.
    #[serde(default, deserialize_with = "classes")]
    pub custom_obj_values: IndexMap<String, String>,
    /// Whether a subgraph gives its one tensor itself instead of a list of one.
    #[serde(default)]
    pub is_single_tensor_return: bool,
}

fn classes<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<IndexMap<String, String>, D::Error> {
    let objects: IndexMap<String, CustomObjArgument> = IndexMap::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|(name, object)| (name, object.class_fqn)).collect())
}

/// A call of an operator.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Node {
    /// The operator as the file names it: `torch.ops.aten.add.Tensor`.
    pub target: String,
    /// Arguments that have their default value are left out.
    pub inputs: Vec<NamedArgument>,
    pub outputs: Vec<Argument>,
    /// `stack_trace`, `nn_module_stack`, `torch_fn` and whatever else the file holds.
    #[serde(default)]
    pub metadata: IndexMap<String, String>,
    /// Whether a higher-order operator gives its one tensor itself instead of a list of one.
    #[serde(default)]
    pub is_hop_single_tensor_return: Option<bool>,
    /// Older files do not name their nodes.
    #[serde(default)]
    pub name: Option<String>,
}

/// A place in the user's Python source. Prints as `model.py:12: y = self.fc(x)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLine<'a> {
    /// The whole path.
    pub file: &'a str,
    pub line: u32,
    pub function: &'a str,
    /// Empty where the file does not hold it.
    pub code: &'a str,
}

impl fmt::Display for SourceLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.file.rsplit(['/', '\\']).next().unwrap_or(self.file);
        write!(f, "{name}:{}", self.line)?;
        if self.code.is_empty() { Ok(()) } else { write!(f, ": {}", self.code) }
    }
}

impl Node {
    /// The node's name, or that of its first output, or its operator's.
    pub fn label(&self) -> &str {
        if let Some(name) = &self.name {
            return name;
        }
        match self.outputs.first() {
            Some(Argument::Tensor(name)) => name,
            Some(Argument::Tensors(names)) => names.first().unwrap_or(&self.target),
            Some(Argument::SymInt(crate::argument::Sym::Name(name))) => name,
            _ => &self.target,
        }
    }

    /// The argument of this name, where the node has it.
    pub fn input(&self, name: &str) -> Option<&Argument> {
        self.inputs.iter().find(|input| input.name == name).map(|input| &input.arg)
    }

    /// The Python stack at the time the operator was traced, outermost frame first.
    pub fn stack_trace(&self) -> Option<&str> {
        self.metadata.get("stack_trace").map(String::as_str)
    }

    pub fn nn_module_stack(&self) -> Option<&str> {
        self.metadata.get("nn_module_stack").map(String::as_str)
    }

    pub fn torch_fn(&self) -> Option<&str> {
        self.metadata.get("torch_fn").map(String::as_str)
    }

    /// The user's own line of Python: the innermost frame outside installed packages, else outside PyTorch.
    pub fn source_line(&self) -> Option<SourceLine<'_>> {
        let frames = frames(self.stack_trace()?);
        let own = |frame: &&SourceLine<'_>| !is_generated(frame.file) && !is_torch(frame.file);
        let innermost = frames.iter().rev().filter(own);
        let mut outside = innermost.clone().filter(|frame| !is_installed(frame.file));
        outside.next().or_else(|| innermost.clone().next()).copied()
    }
}

/// Code that Python made and that stands in no file: `<eval_with_key>.3`.
fn is_generated(file: &str) -> bool {
    file.starts_with('<')
}

fn is_torch(file: &str) -> bool {
    file.split(['/', '\\']).rev().skip(1).any(|folder| folder == "torch")
}

fn is_installed(file: &str) -> bool {
    file.split(['/', '\\']).any(|folder| folder == "site-packages" || folder == "dist-packages")
}

/// The frames of a Python stack, `File "x.py", line 3, in f` and the code on the next line.
fn frames(stack: &str) -> Vec<SourceLine<'_>> {
    let mut frames: Vec<SourceLine<'_>> = Vec::new();
    for text in stack.lines() {
        let text = text.trim();
        match frame(text) {
            Some(frame) => frames.push(frame),
            // A marker line below the code, `^^^^`, is not code.
            None => match frames.last_mut() {
                Some(last) if last.code.is_empty() && !text.is_empty() => last.code = text,
                _ => {}
            },
        }
    }
    frames
}

fn frame(text: &str) -> Option<SourceLine<'_>> {
    let (file, rest) = text.strip_prefix("File \"")?.split_once("\", line ")?;
    let (line, function) = rest.split_once(", in ").unwrap_or((rest, ""));
    Some(SourceLine { file, line: line.trim().parse().ok()?, function, code: "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(stack: &str) -> Node {
        Node {
            target: "torch.ops.aten.add.Tensor".to_owned(),
            inputs: Vec::new(),
            outputs: vec![Argument::Tensor("add".to_owned())],
            metadata: IndexMap::from([("stack_trace".to_owned(), stack.to_owned())]),
            is_hop_single_tensor_return: None,
            name: None,
        }
    }

    #[track_caller]
    fn shows(stack: &str, line: Option<&str>) {
        assert_eq!(node(stack).source_line().map(|line| line.to_string()).as_deref(), line);
    }

    #[test]
    fn source_line_is_the_users() {
        let user = "  File \"/home/u/model.py\", line 12, in forward\n    y = self.fc(x)\n    ~~~~~~~~~^^^\n";
        let package = "  File \"/v/lib/site-packages/transformers/vit.py\", line 3, in forward\n    return a\n";
        let torch = "  File \"/v/lib/site-packages/torch/nn/linear.py\", line 5, in forward\n    return b\n";
        let generated = "  File \"<eval_with_key>.7\", line 9, in forward\n    c = d\n";
        shows(&format!("{user}{package}{torch}"), Some("model.py:12: y = self.fc(x)"));
        shows(&format!("{package}{torch}{generated}"), Some("vit.py:3: return a"));
        shows(&format!("{torch}{generated}"), None);
        shows("File \"torch/fx/passes/runtime_assert.py\", line 24, in insert", None);
        shows("File \"model.py\", line 24, in insert", Some("model.py:24"));
        shows("no stack at all", None);
        assert_eq!(node("").label(), "add");
    }
}
