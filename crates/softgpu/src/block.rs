//! Runs the blocks of a launch: their threads in turns, what they wait for, and what they exchange.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;

use crate::fibre::{Fibre, switch};
use crate::module::{Indices, Kernel, Runtime, Vector};

/// The bytes that a lane gives at most.
const SLOT: usize = 64;
const LANES: usize = 32;

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub blocks: [u32; 3],
    pub threads: [u32; 3],
}

/// What the lanes of a warp wait for.
#[derive(Clone, Default)]
struct Warp {
    /// Lanes that wait in an exchange, and the masks they named.
    waiting: u32,
    masks: [u32; LANES],
    fibres: [usize; LANES],
    given: Slots,
    taken: Slots,
}

#[derive(Clone)]
#[repr(align(64))]
struct Slots([[u8; SLOT]; LANES]);

impl Default for Slots {
    fn default() -> Slots {
        Slots([[0; SLOT]; LANES])
    }
}

/// A piece of dynamic shared memory, aligned as kernels may ask for it.
#[derive(Clone, Copy)]
#[repr(align(1024))]
struct Line([u8; 1024]);

/// Runs blocks on one thread of the host.
struct Runner {
    /// The stack of who asked.
    main: *mut u8,
    fibres: Vec<Fibre>,
    /// The thread that each fibre runs.
    threads: Vec<Option<u32>>,
    idle: Vec<usize>,
    current: usize,
    ready: VecDeque<usize>,
    at_barrier: Vec<usize>,
    /// How often threads have looked for what they wait for since one last came from elsewhere.
    pauses: u32,
    warps: Vec<Warp>,
    /// The block that runs.
    count: u32,
    started: u32,
    live: u32,
    reverse: bool,
    shape: Shape,
    run: unsafe extern "C" fn(*mut *mut c_void),
    parameters: *mut *mut c_void,
    indices: *mut Indices,
    fault: Option<String>,
}

thread_local! {
    static RUNNER: Cell<*mut Runner> = const { Cell::new(ptr::null_mut()) };
    /// A kernel runs on this thread.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    static OWNER: Owner = const { Owner };
}

/// Frees the thread's runner when the thread ends.
struct Owner;

impl Drop for Owner {
    fn drop(&mut self) {
        let runner = RUNNER.replace(ptr::null_mut());
        if !runner.is_null() {
            // SAFETY: made by `Box::into_raw` below, and no kernel runs any more.
            drop(unsafe { Box::from_raw(runner) });
        }
    }
}

/// What kernels call.
pub static RUNTIME: Runtime = Runtime { next, barrier, exchange, set_condition: crate::world::set_condition, pause };

/// So often threads may look for what they wait for in a row, before nobody is taken to make it.
const PAUSES: u32 = 1 << 24;

unsafe extern "C" fn no_kernel(_: *mut *mut c_void) {}

/// Runs a launch to its end.
///
/// # Errors
/// What went wrong, and in which thread.
///
/// # Safety
/// The parameters must be the kernel's, and nothing else may run code of its module meanwhile.
pub unsafe fn run(
    kernel: &Kernel,
    shape: Shape,
    shared: usize,
    reverse: bool,
    parameters: &mut [*mut c_void],
) -> Result<(), String> {
    OWNER.with(|_| {});
    let mut runner = RUNNER.get();
    if runner.is_null() {
        runner = Box::into_raw(Box::new(Runner::new()));
        RUNNER.set(runner);
    }
    let mut dynamic: Vec<Line> = vec![Line([0xff; 1024]); shared.div_ceil(size_of::<Line>())];
    let start = dynamic.first_mut().map_or(ptr::null_mut(), |line| line.0.as_mut_ptr());
    kernel.prepare(&RUNTIME, start.cast(), shape);
    let [x, y, z] = shape.blocks;
    let blocks = u64::from(x) * u64::from(y) * u64::from(z);
    for number in 0..blocks {
        let number = if reverse { blocks - 1 - number } else { number };
        let block = Vector {
            x: (number % u64::from(x)) as u32,
            y: (number / u64::from(x) % u64::from(y)) as u32,
            z: (number / u64::from(x) / u64::from(y)) as u32,
        };
        dynamic.fill(Line([0xff; 1024]));
        kernel.begin(block);
        // SAFETY: the runner is this thread's, and nothing else uses it: kernels run one at a time on a thread.
        let outcome = unsafe {
            let runner = &mut *runner;
            runner.begin(kernel, shape, reverse, parameters.as_mut_ptr());
            RUNNING.set(true);
            let outcome = runner.go();
            RUNNING.set(false);
            outcome
        };
        outcome.map_err(|what| format!("{what}, of block ({}, {}, {})", block.x, block.y, block.z))?;
    }
    Ok(())
}

impl Runner {
    fn new() -> Runner {
        Runner {
            main: ptr::null_mut(),
            fibres: Vec::new(),
            threads: Vec::new(),
            idle: Vec::new(),
            current: 0,
            ready: VecDeque::new(),
            at_barrier: Vec::new(),
            pauses: 0,
            warps: Vec::new(),
            count: 0,
            started: 0,
            live: 0,
            reverse: false,
            shape: Shape { blocks: [1; 3], threads: [1; 3] },
            run: no_kernel,
            parameters: ptr::null_mut(),
            indices: ptr::null_mut(),
            fault: None,
        }
    }

    fn begin(&mut self, kernel: &Kernel, shape: Shape, reverse: bool, parameters: *mut *mut c_void) {
        self.count = shape.threads.iter().product();
        (self.started, self.live) = (0, self.count);
        (self.shape, self.reverse) = (shape, reverse);
        (self.run, self.indices, self.parameters) = (kernel.run, kernel.indices, parameters);
        self.ready.clear();
        self.at_barrier.clear();
        self.warps.resize_with((self.count as usize).div_ceil(LANES), Warp::default);
        self.warps.iter_mut().for_each(|warp| warp.waiting = 0);
        self.fault = None;
    }

    /// Runs the block's threads until none is left.
    fn go(&mut self) -> Result<(), String> {
        if let Some(first) = self.pick() {
            let (main, to) = (&raw mut self.main, self.enter(first));
            // SAFETY: an idle fibre was left by `switch`, or is new.
            unsafe { switch(main, to) };
        }
        if self.fault.is_none() && self.live > 0 {
            self.fault = Some(self.stuck());
        }
        match self.fault.take() {
            None => Ok(()),
            Some(fault) => {
                // What was left half-way is not gone on with.
                self.fibres.clear();
                self.threads.clear();
                self.idle.clear();
                Err(fault)
            }
        }
    }

    /// Who runs next: a fibre whose wait is over, or one for threads that have not begun.
    fn pick(&mut self) -> Option<usize> {
        if let Some(fibre) = self.ready.pop_front() {
            return Some(fibre);
        }
        if self.started == self.count {
            return None;
        }
        self.idle.pop().or_else(|| {
            let fibre = Fibre::new(work);
            if fibre.is_none() {
                self.fault = Some("no memory for the stack of a thread".into());
            }
            self.fibres.push(fibre?);
            self.threads.push(None);
            Some(self.fibres.len() - 1)
        })
    }

    /// Makes a fibre the one that runs, and says where it was left.
    fn enter(&mut self, fibre: usize) -> *mut u8 {
        self.current = fibre;
        if let Some(thread) = self.threads.get(fibre).copied().flatten() {
            self.show(thread);
        }
        self.fibres.get(fibre).map_or(self.main, |fibre| fibre.left)
    }

    /// Gives the module the thread's index.
    fn show(&self, thread: u32) {
        let [x, y, _] = self.shape.threads;
        let index = Vector { x: thread % x, y: thread / x % y, z: thread / x / y };
        // SAFETY: the module's variable, which it reads on this thread alone.
        unsafe { (*self.indices).thread = index };
    }

    fn thread(&self) -> u32 {
        self.threads.get(self.current).copied().flatten().unwrap_or(0)
    }

    /// Takes the next thread for the fibre that runs. Those that can go on come first.
    fn next(&mut self) -> bool {
        let thread = if self.started < self.count && self.ready.is_empty() {
            let number = self.started;
            self.started += 1;
            Some(if self.reverse { self.count - 1 - number } else { number })
        } else {
            None
        };
        if let Some(kept) = self.threads.get_mut(self.current) {
            *kept = thread;
        }
        if let Some(thread) = thread {
            self.show(thread);
        }
        thread.is_some()
    }

    /// The thread of the fibre that runs has ended.
    fn ended(&mut self) {
        if self.threads.get(self.current).is_some_and(Option::is_some) {
            self.live -= 1;
            self.release_barrier();
        }
    }

    /// Whoever ended counts as having come.
    fn release_barrier(&mut self) {
        if !self.at_barrier.is_empty() && self.at_barrier.len() == self.live as usize {
            self.ready.extend(self.at_barrier.drain(..));
        }
    }

    /// A lane gives its value; true: it was the last, and all have theirs.
    fn give(&mut self, mask: u32, value: &[u8]) -> Result<bool, String> {
        let thread = self.thread() as usize;
        let (number, lane) = (thread / LANES, thread % LANES);
        let fibre = self.current;
        let in_block = self.count as usize - number * LANES;
        let there = if in_block >= LANES { u32::MAX } else { (1 << in_block) - 1 };
        let mask = mask & there;
        if mask >> lane & 1 == 0 {
            return Err(format!("a warp operation for the lanes {mask:#x}, called by lane {lane}"));
        }
        let Some(warp) = self.warps.get_mut(number) else { return Err("a warp that is not there".into()) };
        warp.waiting |= 1 << lane;
        warp.masks[lane] = mask;
        warp.fibres[lane] = fibre;
        warp.given.0[lane][..value.len()].copy_from_slice(value);
        let lanes = (0..LANES).filter(|other| mask >> other & 1 == 1);
        let complete = mask & !warp.waiting == 0 && lanes.clone().all(|other| warp.masks[other] == mask);
        if complete {
            warp.waiting &= !mask;
            for other in lanes {
                // What was taken before has been read: its readers are all here again.
                warp.taken.0[other][..value.len()].copy_from_slice(&warp.given.0[other][..value.len()]);
                if other != lane {
                    self.ready.push_back(warp.fibres[other]);
                }
            }
        }
        Ok(complete)
    }

    /// Why nobody can go on.
    fn stuck(&self) -> String {
        let name =
            |fibre: &usize| self.threads.get(*fibre).copied().flatten().map_or("?".to_owned(), |t| t.to_string());
        let barrier: Vec<String> = self.at_barrier.iter().take(8).map(name).collect();
        let mut text = format!("{} of {} threads wait for ever", self.live, self.count);
        if !barrier.is_empty() {
            text.push_str(&format!("; at a barrier: {} threads ({} ...)", self.at_barrier.len(), barrier.join(", ")));
        }
        for (number, warp) in self.warps.iter().enumerate().filter(|(_, warp)| warp.waiting != 0).take(4) {
            text.push_str(&format!("; in a warp operation: lanes {:#x} of warp {number}", warp.waiting));
        }
        text
    }
}

/// Leaves the fibre that runs for the next, or for who asked where there is none.
///
/// # Safety
/// On a fibre of `runner`, which is noted where it will be found again.
unsafe fn leave(runner: *mut Runner) {
    // SAFETY: the runner is this thread's, and the reference to it ends before the switch; what is switched to was left by `switch`, or is
    // new.
    unsafe {
        let (left, to) = {
            let runner = &mut *runner;
            let from = runner.current;
            let to = match runner.pick() {
                // Its own wait is over, or it is idle and taken again at once.
                Some(next) if next == from => return,
                Some(next) => runner.enter(next),
                None => runner.main,
            };
            let Some(fibre) = runner.fibres.get_mut(from) else { return };
            (&raw mut fibre.left, to)
        };
        switch(left, to);
    }
}

/// Stops the block: its threads do not go on.
pub fn stop(what: String) -> ! {
    let runner = RUNNER.get();
    // SAFETY: a kernel runs on this thread, so that its runner is there, and `main` waits in `go`, which drops the fibres that are left.
    unsafe {
        let thread = (*runner).thread();
        (*runner).fault = Some(format!("{what}, in thread {thread}"));
        let mut nowhere = ptr::null_mut();
        switch(&raw mut nowhere, (*runner).main);
    }
    std::process::abort()
}

/// Whether a kernel runs on this thread.
pub fn is_running() -> bool {
    RUNNING.get()
}

/// Whether an address is just below a thread's stack.
pub fn is_overflow(address: usize) -> bool {
    let runner = RUNNER.get();
    // SAFETY: the runner lives as long as the thread.
    !runner.is_null() && unsafe { &*runner }.fibres.iter().any(|fibre| fibre.overflowed_at(address))
}

/// What a fibre does: threads of one block after the other.
extern "C" fn work() -> ! {
    loop {
        let runner = RUNNER.get();
        // SAFETY: the runner lives as long as its fibres; no reference to it is held while the kernel runs.
        unsafe {
            let (run, parameters) = ((*runner).run, (*runner).parameters);
            run(parameters);
            {
                let runner = &mut *runner;
                runner.idle.push(runner.current);
            }
            leave(runner);
        }
    }
}

unsafe extern "C" fn next() -> bool {
    let runner = RUNNER.get();
    // SAFETY: called by a kernel, on a fibre of this thread's runner.
    unsafe {
        (*runner).ended();
        (*runner).next()
    }
}

unsafe extern "C" fn barrier() {
    let runner = RUNNER.get();
    // SAFETY: as in `next`.
    unsafe {
        {
            let runner = &mut *runner;
            runner.at_barrier.push(runner.current);
            runner.release_barrier();
        }
        leave(runner);
    }
}

/// Lets the others go on, by whom what the thread waits for is made.
unsafe extern "C" fn pause() {
    let runner = RUNNER.get();
    // SAFETY: as in `next`.
    unsafe {
        {
            let runner = &mut *runner;
            runner.pauses += 1;
            runner.ready.push_back(runner.current);
        }
        if (*runner).pauses > PAUSES {
            stop("a thread waits for ever".into());
        }
        leave(runner);
    }
}

unsafe extern "C" fn exchange(mask: u32, value: *const c_void, bytes: u32) -> *const u8 {
    let runner = RUNNER.get();
    // SAFETY: as in `next`; the kernel gives that many bytes, 64 at most.
    unsafe {
        let value: &[u8] =
            if bytes == 0 { &[] } else { std::slice::from_raw_parts(value.cast(), (bytes as usize).min(SLOT)) };
        match (*runner).give(mask, value) {
            Ok(true) => {}
            Ok(false) => leave(runner),
            Err(what) => stop(what),
        }
        let runner = &*runner;
        let warp = runner.thread() as usize / LANES;
        runner.warps.get(warp).map_or(ptr::null(), |warp| warp.taken.0.as_ptr().cast())
    }
}
