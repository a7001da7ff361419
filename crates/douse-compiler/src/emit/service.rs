//! Functions that the runtime needs to run a plan's steps, and that no step of the plan is.

use douse_program::plan::{Plan, Predicate, Step};
use douse_program::target::{COPY_THREADS, FunctionName};

use super::kernel::GUARD;
use super::{Function, Modules};

pub(super) fn copy(modules: &mut Modules) -> FunctionName {
    copier(modules, "service_copy", "", "")
}

pub(super) fn guarded_copy(modules: &mut Modules) -> FunctionName {
    let guard = format!("  {GUARD}\n");
    copier(modules, "service_guarded_copy", ", const ErrorFlag *flag", &guard)
}

/// Sixteen bytes a thread at a time; what is left over goes one by one.
const COPY: &str =
    "  const int64 threads = gridDim.x * (int64)blockDim.x, first = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  for (int64 i = first; i < bytes / 16; i += threads) ((uint4 *)to)[i] = ((const uint4 *)from)[i];
  for (int64 i = bytes / 16 * 16 + first; i < bytes; i += threads) ((uint8 *)to)[i] = ((const uint8 *)from)[i];
";

fn copier(modules: &mut Modules, name: &str, parameter: &str, guard: &str) -> FunctionName {
    let body = format!(
        "extern \"C\" __global__ void __launch_bounds__({COPY_THREADS}) {name}(void *to, const void *from, int64 bytes{parameter}) {{
{guard}{COPY}}}
"
    );
    add(modules, name, body)
}

/// Copies what comes back to the host, then tells it that all is there: the last block to end does, once the others have written.
pub(super) fn finish(modules: &mut Modules) -> FunctionName {
    let body = format!(
        "struct Control {{ ErrorFlag flag; uint32 tickets; }};
struct Told {{ ErrorFlag flag; volatile uint32 done; }};
extern \"C\" __global__ void __launch_bounds__({COPY_THREADS}) service_finish(void *to, const void *from, int64 bytes, Control *control, Told *told) {{
{COPY}  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (gridDim.x > 1 && atomicAdd(&control->tickets, 1u) != gridDim.x - 1) return;
  told->flag = control->flag;
  *control = Control{{}};
  __threadfence_system();
  told->done = 1;
}}
"
    );
    add(modules, "service_finish", body)
}

/// Copies elements to where another layout has them, in the order of the layout that is written.
pub(super) fn rearrange(modules: &mut Modules) -> FunctionName {
    let arrays: Vec<String> = ["n", "t", "f"]
        .iter()
        .map(|name| (0..4).map(|i| format!("int64 {name}{i}")).collect::<Vec<_>>().join(", "))
        .collect();
    let parameters = arrays.join(", ");
    let body = format!(
        "template <class T> DEVICE void rearrange(T *to, const T *from, {parameters}) {{
  const int64 threads = gridDim.x * {COPY_THREADS}ll, first = blockIdx.x * {COPY_THREADS}ll + threadIdx.x;
  for (int64 i = first; i < n0 * n1 * n2 * n3; i += threads) {{
    const int64 i3 = i % n3, rest = i / n3, i2 = rest % n2, outer = rest / n2, i1 = outer % n1, i0 = outer / n1;
    to[i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3] = from[i0 * f0 + i1 * f1 + i2 * f2 + i3 * f3];
  }}
}}
extern \"C\" __global__ void __launch_bounds__({COPY_THREADS}) service_rearrange(void *to, const void *from, int64 bytes, {parameters}) {{
  switch (bytes) {{
    case 1: return rearrange((uint8 *)to, (const uint8 *)from, ARGUMENTS);
    case 2: return rearrange((uint16 *)to, (const uint16 *)from, ARGUMENTS);
    case 4: return rearrange((uint32 *)to, (const uint32 *)from, ARGUMENTS);
    case 8: return rearrange((uint64 *)to, (const uint64 *)from, ARGUMENTS);
    default: return rearrange((uint4 *)to, (const uint4 *)from, ARGUMENTS);
  }}
}}
"
    );
    add(modules, "service_rearrange", body.replace("ARGUMENTS", &parameters.replace("int64 ", "")))
}

/// The function that decides a conditional node of a CUDA graph, which the driver has for kernels.
pub(super) fn set_condition(modules: &mut Modules) -> FunctionName {
    let body = "extern \"C\" __device__ void cudaGraphSetConditional(unsigned long long condition, unsigned int value);
extern \"C\" __global__ void service_set_condition(const uint8 *predicate, unsigned long long condition, const ErrorFlag *flag) {
  cudaGraphSetConditional(condition, *predicate != 0 && flag->code == 0);
}
";
    add(modules, "service_set_condition", body.to_owned())
}

fn add(modules: &mut Modules, function: &str, text: String) -> FunctionName {
    let module = modules.add(Function { text, special: false, templates: &[] });
    FunctionName { module, function: function.to_owned() }
}

/// Whether a branch or loop depends on a value of the device.
pub(super) fn branches_on_device(plan: &Plan) -> bool {
    any(&plan.steps)
}

fn any(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::If { predicate, then, otherwise } => {
            matches!(predicate, Predicate::Buffer(_)) || any(then) || any(otherwise)
        }
        Step::While { test, predicate, body } => matches!(predicate, Predicate::Buffer(_)) || any(test) || any(body),
        _ => false,
    })
}
