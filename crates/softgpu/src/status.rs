//! The driver's codes, and errors with details.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

/// `CUresult`.
pub type Status = c_int;

macro_rules! statuses {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        $(pub const $name: Status = $number;)*
        const TABLE: &[(Status, &CStr, &str)] = &[$(
            ($number, match CStr::from_bytes_with_nul(concat!("CUDA_ERROR_", stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }, $text),
        )*];
    };
}
statuses! {
    INVALID_VALUE = 1, "invalid argument";
    OUT_OF_MEMORY = 2, "out of memory";
    INVALID_DEVICE = 101, "invalid device ordinal";
    INVALID_IMAGE = 200, "device kernel image is invalid";
    INVALID_CONTEXT = 201, "invalid device context";
    INVALID_HANDLE = 400, "invalid resource handle";
    NOT_FOUND = 500, "named symbol not found";
    NOT_READY = 600, "device not ready";
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    LAUNCH_FAILED = 719, "unspecified launch failure";
    NOT_SUPPORTED = 801, "operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900, "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "operation failed due to a previous error during capture";
    GRAPH_EXEC_UPDATE_FAILURE = 910, "the graph update was not performed because it included changes which violated constraints";
    UNKNOWN = 999, "unknown error";
}

/// What a call returns, and what `cuGetErrorString` adds to it on the same thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub status: Status,
    pub detail: String,
}

pub type Outcome<T = ()> = Result<T, Failure>;

pub fn fail<T>(status: Status, detail: impl Into<String>) -> Outcome<T> {
    Err(Failure { status, detail: detail.into() })
}

thread_local! {
    /// What the last call that failed on this thread said.
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
    /// The text that `cuGetErrorString` gave last on this thread; replaced by the next.
    static TEXT: RefCell<CString> = RefCell::new(CString::default());
}

pub fn remember(failure: &Failure) {
    LAST.set(Some(failure.clone()));
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn name(status: Status) -> Option<*const c_char> {
    TABLE.iter().find(|row| row.0 == status).map(|row| row.1.as_ptr())
}

/// A description, with the details of the last failure of this thread where it was of this status.
pub fn text(status: Status) -> Option<*const c_char> {
    let general = TABLE.iter().find(|row| row.0 == status)?.2;
    let detail =
        LAST.with_borrow(|last| last.as_ref().filter(|last| last.status == status).map(|last| last.detail.clone()));
    let text = match detail {
        Some(detail) if !detail.is_empty() => format!("{general} ({detail})"),
        _ => general.to_owned(),
    };
    let text = CString::new(text.replace('\0', " ")).ok()?;
    Some(TEXT.with_borrow_mut(|kept| {
        *kept = text;
        kept.as_ptr()
    }))
}
