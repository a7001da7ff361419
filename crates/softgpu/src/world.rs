//! Everything that the driver knows, behind one lock. Work runs without it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::capture::Capture;
use crate::config::Config;
use crate::graph::{Exec, Graph};
use crate::memory::{Kind, Memory};
use crate::module::{Kernel, Module};
use crate::status::{INVALID_HANDLE, Outcome, Status, fail};
use crate::stream::{Event, Stream};

/// The one context: of device 0.
pub const CONTEXT: u64 = 0x10;

#[derive(Debug)]
pub struct World {
    pub config: Config,
    /// How often each of the driver's functions was called.
    pub calls: BTreeMap<&'static str, u64>,
    pub memory: Memory,
    pub retained: usize,
    pub streams: Handles<Arc<Stream>>,
    pub events: Handles<Event>,
    pub modules: Handles<Arc<Module>>,
    /// Gone with their module.
    pub functions: Handles<Function>,
    pub graphs: Handles<Graph>,
    pub execs: Handles<Exec>,
    /// By stream.
    pub captures: BTreeMap<u64, Capture>,
    /// Values of conditions, while the graph that has them is there.
    pub conditions: BTreeMap<u64, u32>,
    next: u64,
}

#[derive(Clone, Debug)]
pub struct Function {
    /// Its module's handle.
    pub module: u64,
    pub kernel: Kernel,
    /// Bytes of dynamic shared memory that launches may ask for, where it was set.
    pub allowed_shared: usize,
}

/// Things by handle. A handle is never used twice.
#[derive(Debug)]
pub struct Handles<T> {
    what: &'static str,
    all: BTreeMap<u64, T>,
}

impl<T> Handles<T> {
    fn new(what: &'static str) -> Handles<T> {
        Handles { what, all: BTreeMap::new() }
    }

    /// # Errors
    /// `INVALID_HANDLE` for one that was destroyed or never was.
    pub fn get(&self, handle: u64) -> Outcome<&T> {
        let missing = || fail(INVALID_HANDLE, format!("{handle:#x} is no {}, or was destroyed", self.what));
        self.all.get(&handle).map_or_else(missing, Ok)
    }

    /// # Errors
    /// As [`Handles::get`].
    pub fn get_mut(&mut self, handle: u64) -> Outcome<&mut T> {
        let what = self.what;
        let missing = || fail(INVALID_HANDLE, format!("{handle:#x} is no {what}, or was destroyed"));
        self.all.get_mut(&handle).map_or_else(missing, Ok)
    }

    /// # Errors
    /// As [`Handles::get`].
    pub fn remove(&mut self, handle: u64) -> Outcome<T> {
        let what = self.what;
        let missing = || fail(INVALID_HANDLE, format!("{handle:#x} is no {what}, or was destroyed"));
        self.all.remove(&handle).map_or_else(missing, Ok)
    }

    pub fn insert(&mut self, handle: u64, thing: T) {
        self.all.insert(handle, thing);
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.all.values()
    }

    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.all.retain(|_, thing| keep(thing));
    }
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| {
    let mut config = Config::default();
    if let Ok(words) = std::env::var("SOFTGPU")
        && let Err(error) = config.apply(&words)
    {
        eprintln!("{error}");
        std::process::abort();
    }
    // SAFETY: a function without preconditions.
    unsafe { libc::atexit(at_exit) };
    Mutex::new(World {
        config,
        calls: BTreeMap::new(),
        memory: Memory::default(),
        retained: 0,
        streams: Handles::new("stream"),
        events: Handles::new("event"),
        modules: Handles::new("module"),
        functions: Handles::new("function"),
        graphs: Handles::new("graph"),
        execs: Handles::new("instance of a graph"),
        captures: BTreeMap::new(),
        conditions: BTreeMap::new(),
        next: 0x1000,
    })
});

/// Everything. Not to be held while work runs.
pub fn world() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Contexts that this thread pushed.
    pub static CURRENT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl World {
    pub fn handle(&mut self) -> u64 {
        self.next += 0x10;
        self.next
    }

    /// Counts a call, and says whether it fails by order.
    pub fn begin(&mut self, call: &'static str) -> Option<Status> {
        *self.calls.entry(call).or_default() += 1;
        self.config.injected(call)
    }

    pub fn stream(&self, handle: u64) -> Outcome<Arc<Stream>> {
        self.streams.get(handle).cloned()
    }

    /// Writes a line to the log, where there is one.
    pub fn note(&self, line: &str) {
        let Some(path) = &self.config.log else { return };
        let file = std::fs::File::options().append(true).create(true).open(path);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{line}")) {
            eprintln!("softgpu: {path}: {error}");
        }
    }

    /// What is not freed, in words; empty where nothing is left.
    pub fn left(&self) -> String {
        let (blocks, bytes) = self.memory.count(Kind::Device);
        let (pinned, pinned_bytes) = self.memory.count(Kind::Pinned);
        let counts = [
            (blocks, format!("allocations ({bytes} bytes)")),
            (pinned, format!("pinned allocations ({pinned_bytes} bytes)")),
            (self.streams.len(), "streams".to_owned()),
            (self.events.len(), "events".to_owned()),
            (self.modules.len(), "modules".to_owned()),
            (self.graphs.len(), "graphs".to_owned()),
            (self.execs.len(), "instances of graphs".to_owned()),
            (self.retained, "uses of the context".to_owned()),
        ];
        let left: Vec<String> =
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        left.join(", ")
    }
}

extern "C" fn at_exit() {
    let world = world();
    let left = world.left();
    if world.config.report && !left.is_empty() {
        eprintln!("softgpu: left at exit: {left}");
    }
}

/// What an address is, for an error.
pub fn describe(address: u64) -> String {
    world().memory.describe(address)
}

/// `cudaGraphSetConditional`, as a kernel calls it.
pub unsafe extern "C" fn set_condition(condition: u64, value: u32) {
    let known = world().conditions.get_mut(&condition).map(|kept| *kept = value).is_some();
    if !known {
        crate::block::stop(format!("{condition:#x} is no condition of a graph"));
    }
}
