//! Kernels that go astray: the signal stops the block instead of the process.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::{Once, OnceLock};

use crate::{block, world};

/// What handled signals before, by signal.
static BEFORE: OnceLock<Vec<(c_int, libc::sigaction)>> = OnceLock::new();

const SIGNALS: [c_int; 3] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE];

/// Handles the signals of kernels from now on; others go where they went.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut before = Vec::new();
        for signal in SIGNALS {
            // SAFETY: an empty action, filled in below.
            let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
            action.sa_sigaction = handle as *const () as usize;
            // The kernel's stack may be what is exhausted; and the handler does not return.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            // SAFETY: as above.
            let mut old: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
            // SAFETY: both are of the right type; the handler keeps to what a synchronous signal allows.
            unsafe { libc::sigaction(signal, &raw const action, &raw mut old) };
            before.push((signal, old));
        }
        let _ = BEFORE.set(before);
    });
}

unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if !block::is_running() {
        // SAFETY: the arguments are those this was called with.
        unsafe { pass_on(signal, info, context) };
        return;
    }
    // The signal comes from the kernel's own code, which holds no lock and owns nothing.
    if signal == libc::SIGFPE {
        block::stop("an integer division by zero, or whose result is too large".into());
    }
    // SAFETY: the system gives the address with these signals.
    let address = unsafe { (*info).si_addr() } as usize;
    if block::is_overflow(address) {
        block::stop("the stack of a thread is too small".into());
    }
    block::stop(format!("an access to {}", world::describe(address as u64)));
}

unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let old = BEFORE.get().and_then(|all| all.iter().find(|(s, _)| *s == signal)).map(|(_, old)| *old);
    // SAFETY: the handler that was there is called as the system would; where there was none, the signal comes again and ends the process.
    unsafe {
        match old {
            Some(old) if old.sa_sigaction == libc::SIG_DFL || old.sa_sigaction == libc::SIG_IGN => {
                libc::signal(signal, libc::SIG_DFL);
            }
            Some(old) if old.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    std::mem::transmute(old.sa_sigaction);
                handler(signal, info, context);
            }
            Some(old) => {
                let handler: unsafe extern "C" fn(c_int) = std::mem::transmute(old.sa_sigaction);
                handler(signal);
            }
            None => {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}
