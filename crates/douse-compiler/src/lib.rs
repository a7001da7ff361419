//! Compiles an exported program to a plan
