//! The device's memory, and pinned memory of the host: pages of the host, with pages around them that cannot be accessed.

use std::collections::{BTreeMap, VecDeque};
use std::ptr;

use crate::sanitizer::poison;
use crate::status::{ILLEGAL_ADDRESS, INVALID_VALUE, OUT_OF_MEMORY, Outcome, fail};

const PAGE: usize = 4096;
/// Allocations begin at multiples of this, as the driver's do.
const ALIGNMENT: usize = 256;
/// New memory is full of it: NaN as a float, -1 as an integer.
const POISON: u8 = 0xff;
/// What stands between the end of an allocation and the page that cannot be accessed.
const FENCE: u8 = 0xc5;
/// Freed allocations whose addresses are not used again.
const KEPT: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Device,
    Pinned,
}

#[derive(Debug)]
struct Block {
    kind: Kind,
    len: usize,
    /// All of its pages, the two that cannot be accessed among them.
    mapping: (usize, usize),
}

/// All allocations.
#[derive(Debug, Default)]
pub struct Memory {
    blocks: BTreeMap<u64, Block>,
    freed: VecDeque<(u64, Block)>,
    /// Bytes of the device that are in use.
    pub used: u64,
}

impl Memory {
    /// Memory of `len` bytes.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` where the host has none; `INVALID_VALUE` for no bytes.
    pub fn allocate(&mut self, kind: Kind, len: usize) -> Outcome<u64> {
        if len == 0 {
            return fail(INVALID_VALUE, "an allocation of no bytes");
        }
        let accessible = len.next_multiple_of(PAGE);
        let mapped = accessible + 2 * PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, nowhere in particular.
        let start = unsafe { libc::mmap(ptr::null_mut(), mapped, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return fail(OUT_OF_MEMORY, format!("the host has no memory for {len} bytes"));
        }
        let first = start as usize + PAGE;
        // SAFETY: the pages within the new mapping.
        let opened = unsafe { libc::mprotect(first as *mut _, accessible, libc::PROT_READ | libc::PROT_WRITE) };
        let block = Block { kind, len, mapping: (start as usize, mapped) };
        if opened != 0 {
            unmap(&block);
            return fail(OUT_OF_MEMORY, format!("the host has no memory for {len} bytes"));
        }
        let address = first + accessible - len.next_multiple_of(ALIGNMENT);
        // SAFETY: within the pages that were opened.
        unsafe {
            ptr::write_bytes(first as *mut u8, FENCE, address - first);
            ptr::write_bytes(address as *mut u8, POISON, len);
            ptr::write_bytes((address + len) as *mut u8, FENCE, first + accessible - address - len);
        }
        poison(first, address - first, true);
        poison(address + len, first + accessible - address - len, true);
        if kind == Kind::Device {
            self.used += len as u64;
        }
        self.blocks.insert(address as u64, block);
        Ok(address as u64)
    }

    /// Frees an allocation and says how long it was.
    ///
    /// # Errors
    /// `INVALID_VALUE` for what is no allocation, or was freed; `ILLEGAL_ADDRESS` where something was written just beside it.
    pub fn free(&mut self, kind: Kind, address: u64) -> Outcome<usize> {
        match self.blocks.get(&address) {
            Some(block) if block.kind == kind => {}
            _ => return fail(INVALID_VALUE, format!("freeing {}", self.describe(address))),
        }
        let Some(block) = self.blocks.remove(&address) else { return fail(INVALID_VALUE, "") };
        poison(block.mapping.0, block.mapping.1, false);
        let fences_stand = fences_stand(address as usize, &block);
        let len = block.len;
        if kind == Kind::Device {
            self.used -= len as u64;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let (start, mapped) = block.mapping;
        // SAFETY: the allocation's own pages, which are given back and stay inaccessible.
        unsafe { libc::mmap(start as *mut _, mapped, libc::PROT_NONE, flags, -1, 0) };
        self.freed.push_back((address, block));
        if self.freed.len() > KEPT
            && let Some((_, block)) = self.freed.pop_front()
        {
            unmap(&block);
        }
        match fences_stand {
            true => Ok(len),
            false => fail(ILLEGAL_ADDRESS, format!("something was written just beside an allocation of {len} bytes")),
        }
    }

    /// Checks that bytes are the device's.
    ///
    /// # Errors
    /// `ILLEGAL_ADDRESS`, with what is there.
    pub fn check(&self, address: u64, len: usize, what: &str) -> Outcome {
        match self.find(address) {
            Some((start, block)) if block.kind == Kind::Device => match (address - start) as usize + len {
                end if end <= block.len => Ok(()),
                end => fail(
                    ILLEGAL_ADDRESS,
                    format!("{what}: {len} bytes that end {} after an allocation of {}", end - block.len, block.len),
                ),
            },
            _ => fail(ILLEGAL_ADDRESS, format!("{what}: {}", self.describe(address))),
        }
    }

    /// Whether bytes are pinned memory.
    pub fn is_pinned(&self, address: u64, len: usize) -> bool {
        let found = self.find(address).filter(|(_, block)| block.kind == Kind::Pinned);
        found.is_some_and(|(start, block)| (address - start) as usize + len <= block.len)
    }

    /// The range of an allocation.
    pub fn range(&self, address: u64) -> Option<std::ops::Range<u64>> {
        self.blocks.get(&address).map(|block| address..address + block.len as u64)
    }

    /// The allocation that an address is in, or at the end of.
    fn find(&self, address: u64) -> Option<(u64, &Block)> {
        let (start, block) = self.blocks.range(..=address).next_back()?;
        ((address - start) as usize <= block.len).then_some((*start, block))
    }

    /// What an address is, for an error.
    pub fn describe(&self, address: u64) -> String {
        let within = |start: u64, block: &Block| {
            let (first, mapped) = block.mapping;
            (first..first + mapped).contains(&(address as usize)).then(|| {
                let (offset, len) = (address as i64 - start as i64, block.len as i64);
                let kind = if block.kind == Kind::Device { "the device's memory" } else { "pinned memory" };
                match offset {
                    ..0 => format!("{} bytes before an allocation of {len} bytes of {kind}", -offset),
                    _ if offset >= len => {
                        format!("{} bytes after the end of an allocation of {len} bytes of {kind}", offset - len)
                    }
                    _ => format!("byte {offset} of an allocation of {len} bytes of {kind}"),
                }
            })
        };
        if address == 0 {
            return "null".into();
        }
        if let Some(text) = self.blocks.iter().find_map(|(start, block)| within(*start, block)) {
            return text;
        }
        match self.freed.iter().rev().find_map(|(start, block)| within(*start, block)) {
            Some(text) => format!("memory that was freed: {text}"),
            None => format!("{address:#x}, which is not the device's memory"),
        }
    }

    /// The allocations that are there, by kind, and their bytes.
    pub fn count(&self, kind: Kind) -> (usize, usize) {
        let all = self.blocks.values().filter(|block| block.kind == kind);
        all.fold((0, 0), |(count, bytes), block| (count + 1, bytes + block.len))
    }
}

/// Whether nothing was written between an allocation and the pages around it.
fn fences_stand(address: usize, block: &Block) -> bool {
    let (start, mapped) = block.mapping;
    let (first, end) = (start + PAGE, start + mapped - PAGE);
    let whole = |from: usize, to: usize| {
        // SAFETY: within the allocation's pages, which are accessible until it is freed.
        let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, to - from) };
        bytes.iter().all(|byte| *byte == FENCE)
    };
    whole(first, address) && whole(address + block.len, end)
}

fn unmap(block: &Block) {
    let (start, mapped) = block.mapping;
    // SAFETY: the block's own mapping, which nobody uses.
    unsafe { libc::munmap(start as *mut _, mapped) };
}
