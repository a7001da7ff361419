//! Fusion: which values are stored in memory, and which kernels compute them.
//!
//! 1. [`layout`]: the strides that each value has if it is stored.
//! 2. [`points`]: what is computed from a product's result point by point, for its epilogue.
//! 3. [`fate`]: every value is stored, or computed on the fly where it is read (*inlined*). Roots of kernels are stored values; what they
//!    are computed from, down to other stored values, is inlined.
//! 4. [`member`]: a root's loop nest in a form of its own: loops over its shape (and what it reduces), one body, reads of stored values.
//! 5. [`group`]: members that agree on outer loops share a kernel: softmax is three of them.
//! 6. [`finish`]: a group becomes a [`Kernel`]: members become stages, reads of members become registers, locals, or loads.
//!
//! Invariants: a read within a group is at the same outer point as the write. A member only ever joins a group at an earlier place than
//! its own if everything else that it reads stands before that place. Nothing is inlined that has an effect on state.
//!
//! [`Kernel`]: douse_program::kernel::Kernel

pub mod fate;
pub mod finish;
pub mod group;
pub mod layout;
pub mod member;
pub mod points;
