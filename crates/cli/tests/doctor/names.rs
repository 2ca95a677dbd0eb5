//! Names that are no plain words.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use trimtab_linux::mount;

use crate::common::possible;
use crate::mounts::Loop;
use crate::support::{DISK, doctor};

#[test]
fn mount_point_with_a_newline_keeps_table_and_fix_in_lines() {
    if !possible() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let place = dir.path().join("a\nb");
    fs::create_dir(&place).unwrap();
    let device = Loop::new(dir.path(), DISK);
    let made = Command::new("mkfs.ext4").arg("-q").arg(&device.device).status().unwrap();
    assert!(made.success());
    mount::mount(&device.device, &place, "ext4", "").unwrap();
    let output = doctor(&["--run", "/nonexistent"], &[Path::new(&place)]);
    mount::unmount(&place).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let first =
        |start: &str| text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default();
    let name = dir.path().join("a\u{fffd}b").display().to_string();
    let row = first("✓");
    assert!(row.contains(&name) && row.contains("ext4"), "{text}");
    // This machine may trim nothing, or by a timer that passes it by.
    let quoted = format!("$'{}/a\\012b'", dir.path().display());
    assert!(first("Fix:").contains(&quoted), "{text}");
}
