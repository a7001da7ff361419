//! The command line: arguments, and a module for each command.

mod bench;
mod device;
mod devices;
mod explain;
mod failure;
mod inputs;
mod inspect;
mod lower;
mod merge;
mod output;
mod progress;
mod random;
mod run;
mod show;
mod source;
mod tensors;
mod traffic;
mod verify;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs PyTorch programs without PyTorch.
#[derive(Parser)]
#[command(name = "douse", version, arg_required_else_help = true)]
struct Arguments {
    /// Say more about what is done, on standard error (twice: even more)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compile exported programs (.pt2) into one program file (.pte)
    Lower(lower::Lower),
    /// Run a program and print what it gives
    Run(run::Run),
    /// Compare programs with recorded PyTorch answers
    Verify(verify::Verify),
    /// Measure how long a call takes
    Bench(bench::Bench),
    /// Say what a .pt2, .pte or .ptd file holds
    Inspect(inspect::Inspect),
    /// Show the plan of a program: steps, kernels, memory, host reads
    Explain(explain::Explain),
    /// Join two program files into one
    Merge(merge::Merge),
    /// List what programs can run on
    Devices(devices::Devices),
}

/// Runs the command line. Exit codes: 0 done, 1 the answer is no, 2 the command line is wrong.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let level = match arguments.verbose {
        0 => tracing_subscriber::filter::LevelFilter::WARN,
        1 => tracing_subscriber::filter::LevelFilter::INFO,
        _ => tracing_subscriber::filter::LevelFilter::DEBUG,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .log_internal_errors(false)
        .init();
    let done = match arguments.command {
        Command::Lower(command) => command.run(),
        Command::Run(command) => command.run(),
        Command::Verify(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::Inspect(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Merge(command) => command.run(),
        Command::Devices(command) => command.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
