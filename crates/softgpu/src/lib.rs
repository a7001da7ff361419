//! A `libcuda.so` that runs kernels on the host's processor: what Douse needs of the CUDA driver, for tests on machines without a GPU.
//!
//! # How a module is made
//! The compiler emits the same CUDA C++ for the target `soft` as for a GPU. `douse_cuda::soft` puts `soft.cuh` before it, which supplies what
//! CUDA adds to C++, and a table of the kernels after it, and has the host's C++ compiler make a shared object of the two, which is the module.
//! `cuModuleLoadDataEx` opens it from memory ([`module`]).
//!
//! # How a kernel runs
//! The blocks of a launch run one after the other on the thread that makes it run. A block's threads run one after the other too: the first
//! on a stack of its own ([`fibre`]); where it ends, the next on the same stack; where it waits (at a barrier, or for the lanes of its warp),
//! the next on another stack ([`block`]). So a kernel without barriers is a plain loop, and one with barriers switches stacks, and nothing has
//! to be known of either before.
//!
//! # What is checked
//! - Memory ([`memory`]): copies, fills and the pointers that kernels get must lie in memory that is allocated and not freed. An allocation ends
//!   at a page that cannot be accessed, and freed memory stays inaccessible: a kernel that goes astray is stopped, and the stream's work fails with
//!   a message that says which kernel, thread and address ([`fault`]). New memory and each block's shared memory are full of `0xff`: NaN, or -1.
//! - Order ([`stream`]): work waits until somebody waits for it. Who reads a copy's target too early, or changes its source, gets what the
//!   hardware may give. (`eager` turns this off.)
//! - Synchronisation: a barrier that not every thread reaches, a warp operation that not every lane reaches.
//! - Handles: each is unique, so that one that was destroyed is known to be.
//! - Parameters: a module says of each kernel how many it takes and of what sizes, and `cuFuncGetParamInfo` tells it.
//! - With AddressSanitizer ([`sanitizer`]), accesses beside a thread's own arrays, too.
//!
//! # Hopper
//! With the option `capability=9`, code is made for the target `soft_90a`: warpgroups that multiply what lies in shared memory, barriers in shared
//! memory, and the copy engine ([`tensor_map`]), each done at once where it is asked for. Clusters of blocks are not there.
//!
//! # Products
//! The library is a `libcublasLt.so` too ([`blas`]), for tests of what uses one where it is installed.
//!
//! # Options
//! From the environment variable `SOFTGPU`, or `softgpu_configure`; words with spaces between them ([`config`]). `softgpu_left` says what is
//! not freed, `softgpu_calls` how often each function was called.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::missing_safety_doc)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod blas;
mod block;
mod capture;
mod config;
mod entry;
mod exports;
mod fault;
mod fibre;
mod graph;
mod graph_entry;
mod memory;
mod module;
mod params;
mod sanitizer;
mod status;
mod stream;
mod tensor_map;
mod world;
