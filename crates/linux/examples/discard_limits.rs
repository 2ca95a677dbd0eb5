//! Prints the layers below a path, from the file system down to the drive, with the limits of the
//! discards that each takes.
//!
//! Reads sysfs and procfs only. As an ordinary user it leaves out what only root may see, such as the file
//! below a loop device.
//!
//! Run it: `cargo run --example discard_limits -- /home`

use std::env;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use trimtab_core::Bytes;
use trimtab_core::error::chain;
use trimtab_linux::stack::{Layer, Machine, Stack};

/// Returns the discard limits of a layer in words.
fn limits(layer: &Layer) -> String {
    match layer.limits {
        None => "no limits of its own".to_owned(),
        Some(limits) if limits.max == Bytes::ZERO => "takes no discards".to_owned(),
        Some(limits) => format!("discards of up to {}, granularity {}", limits.max, limits.granularity),
    }
}

fn main() -> ExitCode {
    if let Err(error) = run() {
        eprintln!("{}", chain(&*error));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run() -> Result<(), Box<dyn Error>> {
    let path = env::args_os().nth(1).ok_or("name a mount point, a file or a block device")?;
    let stack = Stack::of(&Machine::live(), Path::new(&path))?;
    for layer in &stack.layers {
        let label = layer.label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
        println!("{}{label}: {}", layer.path(), limits(layer));
        for below in &layer.below {
            println!("    lies on {}", stack.layers[below.layer].path());
        }
    }
    Ok(())
}
