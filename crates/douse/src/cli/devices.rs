//! `douse devices`.

use clap::Args;

use super::failure::Done;

#[derive(Args)]
pub struct Devices {}

impl Devices {
    pub fn run(self) -> Done {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        println!("cpu   {threads} thread{}", if threads == 1 { "" } else { "s" });
        println!("cuda  not supported yet by this version of Douse");
        Ok(())
    }
}
