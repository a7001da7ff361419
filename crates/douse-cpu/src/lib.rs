//! Runs kernels and library operations on the CPU
