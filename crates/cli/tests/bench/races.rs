//! Devices that come into use while a bench looks at them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::executable::make_executable;
use crate::scene::{EVERYTHING, Scene};
use crate::support::{TRIMTAB, bench, possible, refusal, run};

/// A library that makes a program pause when it opens the device `$PAUSE_AT` exclusively: it creates the file
/// `$PAUSED`, and waits for the file `$GO`.
const PAUSE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
    if ((flags & O_EXCL) && strcmp(path, getenv("PAUSE_AT")) == 0) {
        close(next(getenv("PAUSED"), O_CREAT | O_WRONLY, 0600));
        while (access(getenv("GO"), F_OK) != 0)
            usleep(1000);
    }
    return next(path, flags, mode);
}
"#;

/// A program that runs wipefs while the path `$DEVICE` leads to `$OTHER`.
const WIPEFS: &str = r#"#!/bin/sh
PATH=$REAL_PATH
mount --bind "$OTHER" "$DEVICE"
wipefs "$@"
status=$?
umount "$DEVICE"
exit $status
"#;

#[test]
fn signatures_are_those_of_the_device_whatever_its_path_leads_to() {
    if !possible() {
        return;
    }
    let mut scene = Scene::new();
    let images = ["image", "other"].map(|name| scene.image(name, 40));
    let [device, other] = images.map(|image| scene.losetup(&[], &image));
    run("mkswap", &[&device]);
    make_executable(Path::new(&scene.path("wipefs")), WIPEFS.as_bytes());
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("unshare")
        .args(["--mount", TRIMTAB, "bench", &device, "--dry-run", "--allow-part"])
        .envs([("DEVICE", &device), ("OTHER", &other), ("REAL_PATH", &path)])
        .env("PATH", format!("{}:{path}", scene.directory.path().display()))
        .output()
        .unwrap();
    let (status, reason) = refusal(&output);
    assert_eq!(status, Some(1), "{reason}");
    assert!(reason.contains(&format!("{device} holds swap")), "{reason}");
}

/// Benches a device to which another loop device over its file is added meanwhile, which may be mounted. Returns the result,
/// and the words with which it has to be refused.
fn bench_beside_new_device(is_mounted: bool) -> (Output, String) {
    let mut scene = Scene::new();
    let image = scene.image("image", 40);
    let [device, sibling] = [(); 2].map(|()| scene.losetup(&[], &image));
    run("mkfs.ext4", &["-q", &device]);
    let target = scene.dir("mnt");
    let [source, library, paused, go] = ["pause.c", "pause.so", "paused", "go"].map(|name| scene.path(name));
    fs::write(&source, PAUSE).unwrap();
    run("cc", &["-shared", "-fPIC", "-o", &library, &source, "-ldl"]);
    let mut child = bench(Path::new(&device), &EVERYTHING)
        .arg("--quick")
        .current_dir(scene.directory.path())
        .envs([("LD_PRELOAD", &library), ("PAUSE_AT", &sibling), ("PAUSED", &paused), ("GO", &go)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !Path::new(&paused).exists() {
        assert!(child.try_wait().unwrap().is_none(), "{:?}", child.wait_with_output());
        thread::sleep(Duration::from_millis(1));
    }
    let new = scene.losetup(&[], &image);
    let how = if is_mounted {
        let mounted = Command::new("mount").args([&new, &target]).status().unwrap();
        scene.ends.push(("umount", target.clone()));
        assert!(mounted.success());
        format!("is mounted on {target}; ")
    } else {
        "appeared while it was looked at; ".to_owned()
    };
    fs::write(&go, "").unwrap();
    (child.wait_with_output().unwrap(), format!("{device} shares its bytes with {new}, which {how}"))
}

#[test]
fn devices_that_appear_before_the_guards_are_found() {
    if !possible() {
        return;
    }
    let (output, words) = bench_beside_new_device(true);
    let (status, reason) = refusal(&output);
    assert!(status == Some(1) && reason.contains(&words), "{reason}");
    // Where a loop device of another test comes or goes at that moment, bench looks again, and then holds the new device like
    // the others.
    let mut results = (0..5).map(|_| bench_beside_new_device(false));
    let (output, words) = results.find(|(output, _)| !output.status.success()).expect("it is refused");
    let (status, reason) = refusal(&output);
    assert!(status == Some(1) && reason.contains(&words), "{reason}");
}
