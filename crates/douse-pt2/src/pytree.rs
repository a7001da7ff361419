//! How the caller's arguments and results are nested, and what their leaves are called.

use indexmap::IndexMap;
use serde::Deserialize;

/// A nest of containers whose leaves are the program's user inputs or outputs in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeSpec {
    Leaf,
    Node {
        /// The container's type as PyTorch names it: `builtins.dict`, `collections.namedtuple`.
        kind: String,
        /// What else the type needs to be made again, as the JSON text of the file.
        context: String,
        /// Names of the children, where they have names: keys of a dict, fields of a named tuple.
        keys: Option<Vec<String>>,
        children: Vec<TreeSpec>,
    },
}

/// Longer keys are not shown in names.
const MAX_KEY: usize = 100;
/// The version of PyTorch's form of a specification.
const VERSION: i64 = 1;

#[derive(Deserialize)]
struct RawTree {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    context: serde_json::Value,
    #[serde(default)]
    children_spec: Vec<RawTree>,
}

impl TreeSpec {
    /// Reads a specification; `None` if it is in a form that is not known. `fields` are those of named tuples, by type.
    pub(crate) fn read(text: &str, fields: &IndexMap<String, Vec<String>>) -> Option<TreeSpec> {
        let (version, tree): (i64, RawTree) = serde_json::from_str(text).ok()?;
        (version == VERSION).then(|| convert(tree, fields))
    }

    /// The number of leaves.
    pub fn leaves(&self) -> usize {
        match self {
            TreeSpec::Leaf => 1,
            TreeSpec::Node { children, .. } => children.iter().map(TreeSpec::leaves).sum(),
        }
    }

    /// The names of the leaves of an input specification, a tuple of positional and a dict of keyword arguments:
    /// `x`, `states[0]`, `batch.mask`.
    pub(crate) fn input_labels(&self, forward: Option<&[String]>) -> Vec<String> {
        let mut labels = Vec::new();
        match self.children() {
            [TreeSpec::Node { children: positional, .. }, TreeSpec::Node { children: named, keys, .. }] => {
                for (i, child) in positional.iter().enumerate() {
                    let name = forward.and_then(|names| names.get(i)).cloned();
                    child.label(name.unwrap_or_else(|| format!("args[{i}]")), &mut labels);
                }
                for (i, child) in named.iter().enumerate() {
                    let name = keys.as_ref().and_then(|keys| keys.get(i)).cloned();
                    child.label(name.unwrap_or_else(|| format!("kwargs[{i}]")), &mut labels);
                }
            }
            _ => self.label("args".to_owned(), &mut labels),
        }
        labels
    }

    /// The names of the leaves of an output specification: `output`, `output[0]`, `logits`.
    pub(crate) fn output_labels(&self) -> Vec<String> {
        let mut labels = Vec::new();
        match self {
            TreeSpec::Node { keys: Some(keys), children, .. } => {
                for (key, child) in keys.iter().zip(children) {
                    child.label(key.clone(), &mut labels);
                }
            }
            _ => self.label("output".to_owned(), &mut labels),
        }
        labels
    }

    fn children(&self) -> &[TreeSpec] {
        match self {
            TreeSpec::Leaf => &[],
            TreeSpec::Node { children, .. } => children,
        }
    }

    fn label(&self, name: String, labels: &mut Vec<String>) {
        match self {
            TreeSpec::Leaf => labels.push(name),
            TreeSpec::Node { children, keys, .. } => {
                for (i, child) in children.iter().enumerate() {
                    let step = match keys.as_ref().and_then(|keys| keys.get(i)) {
                        Some(key) if key.len() <= MAX_KEY && is_identifier(key) => format!("{name}.{key}"),
                        Some(key) if key.len() <= MAX_KEY => format!("{name}[{key}]"),
                        _ => format!("{name}[{i}]"),
                    };
                    child.label(step, labels);
                }
            }
        }
    }
}

fn is_identifier(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == '_') && !text.starts_with(|c: char| c.is_ascii_digit())
}

fn convert(tree: RawTree, fields: &IndexMap<String, Vec<String>>) -> TreeSpec {
    let Some(kind) = tree.kind else { return TreeSpec::Leaf };
    let context = match tree.context {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    let keys = keys(&kind, &context, fields, tree.children_spec.len());
    let children = tree.children_spec.into_iter().map(|child| convert(child, fields)).collect();
    TreeSpec::Node { kind, context, keys, children }
}

/// The children's names: a list in the context (dicts, model outputs), a list inside it (default dicts, dataclasses), or
/// the fields of the named tuple that the context names.
fn keys(kind: &str, context: &str, fields: &IndexMap<String, Vec<String>>, count: usize) -> Option<Vec<String>> {
    let fields_of = |kind: &str| fields.get(kind).filter(|fields| fields.len() == count).cloned();
    if let Some(fields) = fields_of(kind) {
        return Some(fields);
    }
    let context: serde_json::Value = serde_json::from_str(context).unwrap_or_else(|_| context.into());
    let list = match &context {
        serde_json::Value::String(name) => return fields_of(name),
        serde_json::Value::Object(object) => match object.get("dict_context")? {
            serde_json::Value::String(text) => serde_json::from_str(text).ok()?,
            other => other.clone(),
        },
        other => other.clone(),
    };
    let name = |key: &serde_json::Value| match key {
        serde_json::Value::String(name) => name.clone(),
        other => other.to_string(),
    };
    // A dataclass: its fields, and beside them those that are None and have no child.
    let list = match list.as_array().map(Vec::as_slice) {
        Some([serde_json::Value::Array(fields), serde_json::Value::Array(_)]) => fields,
        Some(list) => list,
        None => return None,
    };
    (list.len() == count).then(|| list.iter().map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAF: &str = r#"{"type": null, "context": null, "children_spec": []}"#;

    fn node(kind: &str, context: &str, children: &[String]) -> String {
        let context = serde_json::to_string(context).unwrap();
        format!(r#"{{"type": "{kind}", "context": {context}, "children_spec": [{}]}}"#, children.join(", "))
    }

    fn read(text: &str) -> TreeSpec {
        let fields = IndexMap::from([("my.Pair".to_owned(), vec!["left".to_owned(), "right".to_owned()])]);
        TreeSpec::read(&format!("[1, {text}]"), &fields).unwrap()
    }

    #[test]
    fn inputs_are_called_as_in_forward() {
        let leaf = LEAF.to_owned();
        let states = node("builtins.list", "null", &[leaf.clone(), leaf.clone()]);
        let pair = node("collections.namedtuple", "\"my.Pair\"", &[leaf.clone(), leaf.clone()]);
        let batch = node("builtins.dict", "[\"mask\", \"a b\"]", &[leaf.clone(), leaf.clone()]);
        let seen = node("my.Seen", "[[\"image\", \"pose\"], [\"depth\"]]", &[leaf.clone(), leaf.clone()]);
        let positional = node("builtins.tuple", "null", &[leaf.clone(), states, pair, seen]);
        let named = node("builtins.dict", "[\"batch\"]", &[batch]);
        let spec = read(&node("builtins.tuple", "null", &[positional, named]));
        let forward = ["x", "states"].map(str::to_owned);
        assert_eq!(spec.leaves(), 9);
        let expected =
            "x states[0] states[1] args[2].left args[2].right args[3].image args[3].pose batch.mask batch[a b]";
        assert_eq!(spec.input_labels(Some(&forward)).join(" "), expected);
    }

    #[test]
    fn outputs_are_called_by_their_keys() {
        let leaf = LEAF.to_owned();
        assert_eq!(read(LEAF).output_labels(), ["output"]);
        assert_eq!(read(&node("builtins.tuple", "null", std::slice::from_ref(&leaf))).output_labels(), ["output[0]"]);
        let cache = node("builtins.tuple", "null", &[leaf.clone(), leaf.clone()]);
        let output = node("transformers.ModelOutput", "[\"logits\", \"cache\"]", &[leaf, cache]);
        assert_eq!(read(&output).output_labels(), ["logits", "cache[0]", "cache[1]"]);
    }

    #[test]
    fn other_forms_are_not_guessed_at() {
        let fields = IndexMap::new();
        assert_eq!(TreeSpec::read(&format!("[2, {LEAF}]"), &fields), None);
        assert_eq!(TreeSpec::read("", &fields), None);
    }
}
