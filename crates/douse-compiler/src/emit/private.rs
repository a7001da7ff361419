//! Which buffers only one kernel touches: what it keeps in registers it need not store there. And which it only reads.

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

/// For each kernel the parameters whose buffers no step gives it to write too: loads from them need not wait for stores.
pub(super) fn only_read(plan: &Plan) -> Vec<Vec<u32>> {
    let reads = |kernel: usize| {
        let params = plan.kernels.get(kernel).map_or(&[][..], |kernel| kernel.params.as_slice());
        params.iter().map(|param| param.access == Access::Read).collect::<Vec<_>>()
    };
    let mut only: Vec<Vec<u32>> = (0..plan.kernels.len())
        .map(|kernel| (0u32..).zip(reads(kernel)).filter(|(_, reads)| *reads).map(|(param, _)| param).collect())
        .collect();
    uses::each_step(&plan.steps, &mut |step| {
        if let Step::Kernel { kernel, args } = step
            && let Some(only) = only.get_mut(*kernel as usize)
        {
            let reads = reads(*kernel as usize);
            let written: Vec<_> = args.iter().zip(&reads).filter(|(_, reads)| !**reads).map(|(arg, _)| *arg).collect();
            only.retain(|param| args.get(*param as usize).is_some_and(|arg| !written.contains(arg)));
        }
    });
    only
}
