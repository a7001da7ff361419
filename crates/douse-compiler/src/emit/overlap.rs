//! Launches that overlap (programmatic dependent launch): a kernel's blocks come onto the device while those of the kernel before it end.

/// What begins a kernel; it stands in `cuda/overlap.cuh`.
pub(super) const BEGIN: &str = "  BEGIN_KERNEL;\n";
/// What says that something which is called begins the kernel.
pub(super) const BEGIN_LATER: &str = "  BEGIN_LATER;\n";

/// Whether a text says itself where the kernel begins.
pub(super) fn begins(text: &str) -> bool {
    text.contains(BEGIN) || text.contains(BEGIN_LATER)
}

/// A function's text with every kernel beginning so, unless it says itself where it does.
pub(super) fn begin(text: &str) -> String {
    if begins(text) {
        return text.to_owned();
    }
    let mut parts = text.split("__global__");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("__global__");
        match part.split_once("{\n") {
            Some((head, body)) => {
                out.push_str(head);
                out.push_str("{\n");
                out.push_str(BEGIN);
                out.push_str(body);
            }
            None => out.push_str(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_kernel_begins_so_and_nothing_else_does() {
        let text = "// a {\nint f() {\n}\n__global__ void __launch_bounds__(8) k(int a) {\n  if (a) {\n  }\n}\n__global__ void l() {\n}\n";
        let expected = "// a {\nint f() {\n}\n__global__ void __launch_bounds__(8) k(int a) {\n  BEGIN_KERNEL;\n  if (a) {\n  }\n}\n\
                        __global__ void l() {\n  BEGIN_KERNEL;\n}\n";
        assert_eq!(super::begin(text), expected);
        let later = "__global__ void k() {\n  BEGIN_LATER;\n}\n";
        assert_eq!(super::begin(later), later);
    }
}
