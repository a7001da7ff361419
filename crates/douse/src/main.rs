//! The `douse` command.

// They panic where the output is closed or full: `cli::output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
