//! How the functions of a library are exported: each by its name, with what all have in common around its body.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::status::{self, INVALID_CONTEXT, INVALID_VALUE, Outcome, Status, UNKNOWN, fail};
use crate::world::{CURRENT, world};

/// Runs a call: fails by order, keeps what went wrong for `cuGetErrorString`, lets no panic out.
pub fn call(name: &'static str, needs_context: bool, body: impl FnOnce() -> Outcome) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let injected = world().begin(name);
        if let Some(status) = injected {
            return fail(status, format!("{name} was to fail"));
        }
        if needs_context && CURRENT.with_borrow(Vec::is_empty) {
            return fail(INVALID_CONTEXT, "no context is current");
        }
        body()
    }));
    match outcome.unwrap_or_else(|_| fail(UNKNOWN, "softgpu panicked")) {
        Ok(()) => 0,
        Err(failure) => {
            status::remember(&failure);
            failure.status
        }
    }
}

/// Declares functions; those after `context` need one that is current.
macro_rules! functions {
    ($($kind:ident fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $crate::status::Status {
            // SAFETY: the caller gives what the library's documentation asks for: pointers to what it names, or null where it says so.
            $crate::exports::call(stringify!($name), functions!(@ $kind), || unsafe { $body })
        }
    )*};
    (@ context) => { true };
    (@ plain) => { false };
}

/// Writes a result.
pub unsafe fn give<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return fail(INVALID_VALUE, "a null pointer for a result");
    }
    // SAFETY: the caller's pointer.
    unsafe { to.write(value) };
    Ok(())
}
pub(crate) use functions;

/// A list of the caller's.
pub unsafe fn slice<'a>(start: *const u64, len: usize) -> &'a [u64] {
    // SAFETY: the caller's list.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, len) } }
}
