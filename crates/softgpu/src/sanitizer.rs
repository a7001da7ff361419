//! AddressSanitizer, where modules are compiled with it (`DOUSE_SOFT_FLAGS=-fsanitize=address`) and its library was loaded with the process
//! (`LD_PRELOAD`). It sees accesses just beside an allocation when they are made, and those beside a thread's own arrays.

use std::ffi::{CStr, c_void};
use std::sync::LazyLock;

type Mark = unsafe extern "C" fn(*const c_void, usize);

static MARK: LazyLock<Option<[Mark; 2]>> = LazyLock::new(|| {
    let find = |name: &CStr| {
        // SAFETY: the name ends in 0.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        // SAFETY: of this type in every version of AddressSanitizer.
        (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Mark>(found) })
    };
    Some([find(c"__asan_poison_memory_region")?, find(c"__asan_unpoison_memory_region")?])
});

/// Marks memory as not to be accessed, or the opposite.
pub fn poison(start: usize, len: usize, forbidden: bool) {
    if let Some([forbid, allow]) = *MARK {
        let mark = if forbidden { forbid } else { allow };
        // SAFETY: the memory is softgpu's own mapping.
        unsafe { mark(start as *const c_void, len) };
    }
}
