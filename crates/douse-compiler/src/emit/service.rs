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
fn copier(modules: &mut Modules, name: &str, parameter: &str, guard: &str) -> FunctionName {
    let body = format!(
        "extern \"C\" __global__ void __launch_bounds__({COPY_THREADS}) {name}(void *to, const void *from, int64 bytes{parameter}) {{
{guard}  const int64 threads = gridDim.x * {COPY_THREADS}ll, first = blockIdx.x * {COPY_THREADS}ll + threadIdx.x;
  for (int64 i = first; i < bytes / 16; i += threads) ((uint4 *)to)[i] = ((const uint4 *)from)[i];
  for (int64 i = bytes / 16 * 16 + first; i < bytes; i += threads) ((uint8 *)to)[i] = ((const uint8 *)from)[i];
}}
"
    );
    add(modules, name, body)
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
