//! Which buffers only one kernel touches: what it keeps in registers it need not store there. And which it writes and reaches in no other way.

use douse_program::kernel::Access;
use douse_program::plan::{BufferId, BufferKind, Plan, Step};
use douse_program::uses;

/// For each kernel the parameters that are temporaries which no other step touches.
pub(super) fn params(plan: &Plan) -> Vec<Vec<u32>> {
    let counts = uses::counts(plan);
    let mut launches: Vec<(u32, &[BufferId])> = Vec::new();
    uses::each_step(&plan.steps, &mut |step| {
        if let Step::Kernel { kernel, args } | Step::Fused { kernel, args, .. } = step {
            launches.push((*kernel, args));
        }
    });
    let alone = |buffer: BufferId| {
        let temporary = plan.buffers.get(buffer as usize).is_some_and(|b| matches!(b.kind, BufferKind::Temporary));
        temporary && counts.get(buffer as usize) == Some(&1)
    };
    let mut params = vec![Vec::new(); plan.kernels.len()];
    for (kernel, args) in &launches {
        let once = launches.iter().filter(|(other, _)| other == kernel).count() == 1;
        if let (Some(params), true) = (params.get_mut(*kernel as usize), once) {
            *params = (0u32..).zip(args.iter()).filter(|(_, buffer)| alone(**buffer)).map(|(param, _)| param).collect();
        }
    }
    params
}

/// For each kernel the written parameters whose buffers no step gives it a second time: other loads need not wait for stores to them.
pub(super) fn apart(plan: &Plan) -> Vec<Vec<u32>> {
    let written = |kernel: usize| -> Vec<u32> {
        let params = plan.kernels.get(kernel).map_or(&[][..], |kernel| kernel.params.as_slice());
        (0u32..).zip(params).filter(|(_, param)| param.access != Access::Read).map(|(number, _)| number).collect()
    };
    let mut apart: Vec<Vec<u32>> = (0..plan.kernels.len()).map(written).collect();
    uses::each_step(&plan.steps, &mut |step| {
        if let Step::Kernel { kernel, args } | Step::Fused { kernel, args, .. } = step
            && let Some(apart) = apart.get_mut(*kernel as usize)
        {
            let once = |arg: &BufferId| args.iter().filter(|other| *other == arg).count() == 1;
            apart.retain(|param| args.get(*param as usize).is_some_and(once));
        }
    });
    apart
}
