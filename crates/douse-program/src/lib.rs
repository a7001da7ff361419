//! The program file: plan, kernels, container
