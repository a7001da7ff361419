//! Which buffers only one kernel touches: what it keeps in registers it need not store there.

use douse_program::plan::{BufferId, BufferKind, Plan, Predicate, Step};

/// For each kernel the parameters that are temporaries which no other step touches.
pub(super) fn params(plan: &Plan) -> Vec<Vec<u32>> {
    let mut walk = Walk { touched: vec![0; plan.buffers.len()], kernels: vec![] };
    walk.steps(&plan.steps);
    let mut params = vec![Vec::new(); plan.kernels.len()];
    for (kernel, args) in &walk.kernels {
        let alone = |buffer: BufferId| {
            let temporary = plan.buffers.get(buffer as usize).is_some_and(|b| matches!(b.kind, BufferKind::Temporary));
            temporary && walk.touched.get(buffer as usize) == Some(&1)
        };
        let number = *kernel as usize;
        if let (Some(params), 1) = (params.get_mut(number), walk.kernels.iter().filter(|(k, _)| k == kernel).count()) {
            *params = (0u32..).zip(args.iter()).filter(|(_, buffer)| alone(**buffer)).map(|(param, _)| param).collect();
        }
    }
    params
}

struct Walk<'a> {
    /// How often steps mention each buffer.
    touched: Vec<u32>,
    kernels: Vec<(u32, &'a [BufferId])>,
}

impl<'a> Walk<'a> {
    fn touch(&mut self, buffer: BufferId) {
        if let Some(count) = self.touched.get_mut(buffer as usize) {
            *count += 1;
        }
    }

    fn predicate(&mut self, predicate: &Predicate) {
        if let Predicate::Buffer(buffer) = predicate {
            self.touch(*buffer);
        }
    }

    fn steps(&mut self, steps: &'a [Step]) {
        for step in steps {
            match step {
                Step::Kernel { kernel, args } => {
                    self.kernels.push((*kernel, args));
                    args.iter().for_each(|buffer| self.touch(*buffer));
                }
                Step::Library(library) => {
                    let (read, written) = library.buffers();
                    read.into_iter().chain(written).for_each(|buffer| self.touch(buffer));
                }
                Step::Copy { from, to } => [*from, *to].into_iter().for_each(|buffer| self.touch(buffer)),
                Step::Read { buffer, .. } => self.touch(*buffer),
                Step::Set { .. } | Step::Require { .. } => {}
                Step::If { predicate, then, otherwise } => {
                    self.predicate(predicate);
                    self.steps(then);
                    self.steps(otherwise);
                }
                Step::While { test, predicate, body } => {
                    self.predicate(predicate);
                    self.steps(test);
                    self.steps(body);
                }
            }
        }
    }
}
