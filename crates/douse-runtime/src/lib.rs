//! Loads and runs program files
