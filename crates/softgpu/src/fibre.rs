//! Stacks that code runs on in turns.

use std::ptr;

/// Bytes of a stack; pages that are not touched cost nothing.
const STACK: usize = 256 << 10;
const PAGE: usize = 4096;

/// A stack, with the place where what runs on it was left.
pub struct Fibre {
    memory: *mut u8,
    /// The stack pointer, while it does not run.
    pub left: *mut u8,
}

impl Fibre {
    /// A stack on which `entry` begins when it is switched to. `None` where there is no memory.
    pub fn new(entry: extern "C" fn() -> !) -> Option<Fibre> {
        // SAFETY: a new mapping, nowhere in particular.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                STACK + PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return None;
        }
        let memory: *mut u8 = memory.cast();
        // SAFETY: the first page of the mapping; a stack that grows into it stops the thread that did.
        unsafe { libc::mprotect(memory.cast(), PAGE, libc::PROT_NONE) };
        // As `switch` leaves a stack: six registers, and above them where to go on.
        let top = memory.wrapping_add(STACK + PAGE);
        let left = top.wrapping_sub(16 + 6 * 8);
        // SAFETY: both places are within the mapping and aligned.
        unsafe {
            ptr::write_bytes(left, 0, 6 * 8);
            left.add(6 * 8).cast::<extern "C" fn() -> !>().write(entry);
        }
        Some(Fibre { memory, left })
    }

    /// Whether an address is on the page below the stack.
    pub fn overflowed_at(&self, address: usize) -> bool {
        (self.memory as usize..self.memory as usize + PAGE).contains(&address)
    }
}

impl Drop for Fibre {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; nothing runs on it.
        unsafe { libc::munmap(self.memory.cast(), STACK + PAGE) };
    }
}

/// Leaves the stack that runs, noting where in `from`, and goes on where `to` was left.
///
/// # Safety
/// `to` must be what this function, or [`Fibre::new`], noted of a stack that does not run.
#[unsafe(naked)]
pub unsafe extern "C" fn switch(from: *mut *mut u8, to: *mut u8) {
    core::arch::naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}
