//! Shared libraries that are opened at run time.

use std::ffi::OsString;

use douse_core::{Code, Error, Result};
use libloading::Library;

/// An open library and the name it was found under.
pub(crate) struct Opened {
    pub library: Library,
    pub name: OsString,
}

/// Opens the first of these that is there.
///
/// # Errors
/// `NotFound`, listing what was tried and what the system said of each, and ending with `advice`.
pub(crate) fn open_first(what: &str, names: &[OsString], advice: &str) -> Result<Opened> {
    let mut tried = String::new();
    for name in names {
        match open(name) {
            Ok(library) => {
                tracing::debug!(library = %name.display(), "{what} opened");
                return Ok(Opened { library, name: name.clone() });
            }
            Err(error) => tried.push_str(&format!("\n  {}", reason(name, &error))),
        }
    }
    if tried.is_empty() {
        tried.push_str("\n  nothing: no place to look in was found");
    }
    Err(Error::new(Code::NotFound, format!("{what} is not there; tried:{tried}\n{advice}")))
}

/// What the system says, which names the file in most cases.
fn reason(name: &OsString, error: &libloading::Error) -> String {
    let said = std::error::Error::source(error).map_or_else(|| error.to_string(), |source| source.to_string());
    match said.contains(&*name.to_string_lossy()) {
        true => said,
        false => format!("{}: {said}", name.display()),
    }
}

#[cfg(unix)]
fn open(name: &OsString) -> Result<Library, libloading::Error> {
    use libloading::os::unix::{Library as Unix, RTLD_LOCAL, RTLD_NOW};
    /// Keeps the library's code in the process after it was closed: drivers leave threads and exit handlers behind.
    /// (Linux's number; elsewhere the flag is another or none.)
    const RTLD_NODELETE: std::ffi::c_int = if cfg!(target_os = "linux") { 0x1000 } else { 0 };
    // SAFETY: opening runs the library's initialisers, which for the CUDA libraries have no preconditions.
    unsafe { Unix::open(Some(name), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) }.map(Library::from)
}

#[cfg(not(unix))]
fn open(name: &OsString) -> Result<Library, libloading::Error> {
    // SAFETY: opening runs the library's initialisers, which for the CUDA libraries have no preconditions.
    unsafe { Library::new(name) }
}

/// Opens a library beside another, if it is there. With `RTLD_NODELETE` it stays in the process, where the loader finds it by its name.
#[cfg(feature = "compile")]
pub(crate) fn open_beside(name: &OsString, wanted: impl Fn(&str) -> bool) {
    let folder = std::path::Path::new(name).parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    for entry in entries.into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(&wanted) {
            let path = entry.path().into_os_string();
            match open(&path) {
                Ok(_) => tracing::debug!(library = %path.display(), "opened"),
                Err(error) => tracing::debug!("{}", reason(&path, &error)),
            }
        }
    }
}

/// Declares a table of a library's functions: field, symbol, parameters. All return the library's status. Those marked `[optional]` are not in
/// every version that is supported.
///
/// The generated `load` finds every symbol, or says which is missing.
macro_rules! entry_points {
    (
        $(#[$meta:meta])* $table:ident -> $status:ty;
        $($name:ident = $symbol:literal ($($param:ty),*);)*
        $([optional] $option:ident = $option_symbol:literal ($($option_param:ty),*);)*
    ) => {
        $(#[$meta])*
        pub(crate) struct $table {
            $(pub $name: unsafe extern "C" fn($($param),*) -> $status,)*
            $(pub $option: Option<unsafe extern "C" fn($($option_param),*) -> $status>,)*
            /// Keeps the functions in the process.
            _library: libloading::Library,
        }

        impl $table {
            /// # Errors
            /// The name of the first symbol that the library has not.
            pub fn load(library: libloading::Library) -> Result<$table, &'static str> {
                Ok($table {
                    // SAFETY: the symbol has this signature in every version of the library that has the symbol.
                    $($name: unsafe {
                        *library
                            .get::<unsafe extern "C" fn($($param),*) -> $status>(concat!($symbol, "\0").as_bytes())
                            .map_err(|_| $symbol)?
                    },)*
                    // SAFETY: as above.
                    $($option: unsafe {
                        library
                            .get::<unsafe extern "C" fn($($option_param),*) -> $status>(concat!($option_symbol, "\0").as_bytes())
                            .ok()
                            .map(|found| *found)
                    },)*
                    _library: library,
                })
            }
        }
    };
}
pub(crate) use entry_points;
