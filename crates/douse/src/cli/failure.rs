//! How a command ends when it does not succeed.

use std::process::ExitCode;

use douse::{Error, Refused};

use super::output;

pub enum Failure {
    /// The answer is no: a program was refused, a file cannot be read, a case failed.
    No(String),
    /// The same, and all has been said already.
    Silent,
    /// The command line asks for what cannot be.
    Usage(String),
    /// Whoever reads the output has had enough of it: `douse explain model.pt2 | head`.
    Closed,
}

impl Failure {
    /// Prints the reason and gives the exit code.
    pub fn report(self) -> ExitCode {
        match self {
            Failure::No(message) => {
                output::note(format_args!("error: {message}"));
                ExitCode::from(1)
            }
            Failure::Silent => ExitCode::from(1),
            Failure::Usage(message) => {
                output::note(format_args!("error: {message}\n\nFor more information, try '--help'."));
                ExitCode::from(2)
            }
            Failure::Closed => ExitCode::SUCCESS,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::No(error.message)
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        Failure::No(refused.to_string())
    }
}

pub type Done<T = ()> = Result<T, Failure>;
