//! The graph that Douse compiles: values, core operations, verifier, text form
