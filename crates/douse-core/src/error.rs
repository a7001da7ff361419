//! The one error type of the public edge.

use std::fmt;

/// What kind of fault an error is, with ExecuTorch's names and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Code {
    Internal = 0x1,
    InvalidState = 0x2,
    EndOfMethod = 0x3,
    AlreadyLoaded = 0x4,
    NotSupported = 0x10,
    NotImplemented = 0x11,
    InvalidArgument = 0x12,
    InvalidType = 0x13,
    OperatorMissing = 0x14,
    NotFound = 0x20,
    MemoryAllocationFailed = 0x21,
    AccessFailed = 0x22,
    InvalidProgram = 0x23,
    InvalidExternalData = 0x24,
    OutOfResources = 0x25,
    DelegateInvalidCompatibility = 0x30,
    DelegateMemoryAllocationFailed = 0x31,
    DelegateInvalidHandle = 0x32,
}

/// A fault: what kind, what happened, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub code: Code,
    pub message: String,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into() }
    }

    /// A fault of Douse itself, never of the input.
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(Code::Internal, format!("a fault in Douse itself, please report it: {}", message.into()))
    }

    pub fn invalid_argument(message: impl Into<String>) -> Error {
        Error::new(Code::InvalidArgument, message)
    }

    pub fn invalid_program(message: impl Into<String>) -> Error {
        Error::new(Code::InvalidProgram, message)
    }

    pub fn not_supported(message: impl Into<String>) -> Error {
        Error::new(Code::NotSupported, message)
    }

    /// The same fault, with the place it happened in front: `place: message`.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Error {
        Error { code: self.code, message: format!("{place}: {}", self.message) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
