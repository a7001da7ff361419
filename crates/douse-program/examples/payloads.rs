//! Writes the payload of every method of program files into a folder, a file each: `payloads FOLDER FILE.pte...`. The seeds of the
//! fuzz target `plan`.

use std::error::Error;
use std::path::Path;

use douse_program::container::pte::File;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((folder, files)) = args.split_first() else {
        println!("payloads FOLDER FILE.pte...");
        return Ok(());
    };
    std::fs::create_dir_all(folder)?;
    for path in files.iter().map(Path::new) {
        let file = File::open(path)?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        for (i, payload) in file.methods().filter_map(|m| m.douse_payload()).enumerate() {
            std::fs::write(Path::new(folder).join(format!("{stem}.{i}")), payload)?;
        }
    }
    Ok(())
}
