//! How the caller's arguments and results are nested.

/// A nest of containers whose leaves are the program's user inputs or outputs in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeSpec {
    Leaf,
    Node {
        /// The container's type as PyTorch names it: `builtins.dict`, `collections.namedtuple`.
        kind: String,
        /// What else the type needs to be made again, as the JSON text of the file.
        context: Option<String>,
        /// Names of the children, where they have names: keys of a dict, fields of a named tuple.
        keys: Option<Vec<String>>,
        children: Vec<TreeSpec>,
    },
}
