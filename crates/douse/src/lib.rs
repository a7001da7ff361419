//! Runs PyTorch programs without PyTorch
