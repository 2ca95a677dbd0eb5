//! Devices whose bytes another process can write to.

use std::fs;
use std::process::Command;

use crate::scene::{Scene, is_accepted, is_refused, refuses};
use crate::support::{TRIMTAB, possible};

#[test]
fn device_that_another_process_can_write_to() {
    if !possible() {
        return;
    }
    let (scene, image, device) = Scene::with_loop();
    let node = scene.node(&device, "node");
    let link = scene.linked(&image, "link");
    for (redirection, path, named) in [("<>", &node, &node), (">>", &device, &device), ("<>", &link, &link)] {
        let mut scene = Scene::new();
        let process = scene.shell(&["env"], &format!("exec 3{redirection}{path}"));
        let name = if named == &link { named } else { &device };
        let written =
            format!("process {process} (sleep) has {name} open for writing; end that process first");
        is_refused(&device, &image, &[&format!("{device} is in use: {written}")]);
        let above = scene.losetup(&[], &node);
        is_refused(&above, &image, &[&format!("{above} is in use: {written}")]);
    }
    let mut reader = Scene::new();
    let process = reader.shell(&["env"], &format!("exec 3<{device} 4<{link}"));
    let output =
        Command::new(TRIMTAB).args(["bench", &device, "--dry-run", "--allow-part"]).output().unwrap();
    let planned = String::from_utf8_lossy(&output.stdout);
    let reads = format!("will be disturbed: process {process} (sleep), which has {device} open for reading");
    assert!(output.status.success() && planned.contains(&reads), "{planned}");
}

#[test]
fn device_that_another_process_has_mapped() {
    if !possible() {
        return;
    }
    let (mut scene, image, device) = Scene::with_loop();
    // PROT_READ is 1, and PROT_WRITE 2. A read-only mapping may be made writable if the file was opened for
    // that. Python's own mmap keeps a descriptor.
    for (path, mode, protection, is_written) in [
        (&device, "RDWR", 3, true),
        (&image, "RDWR", 3, true),
        (&device, "RDWR", 1, true),
        (&image, "RDWR", 1, true),
        (&device, "RDONLY", 1, false),
    ] {
        let script = format!(
            "import ctypes, os, sys, time\n\
             file = os.open(sys.argv[1], os.O_{mode})\n\
             map = ctypes.CDLL(None).mmap\n\
             map.restype = ctypes.c_void_p\n\
             shared = 1\n\
             place = map(None, ctypes.c_size_t(4096), {protection}, shared, file, ctypes.c_long(0))\n\
             assert place != ctypes.c_void_p(-1).value\n\
             os.close(file)\n"
        );
        let process = scene.python(&script, &[path]);
        let written = format!("process {process} (python3) has {path} open for writing");
        match is_written {
            true => is_refused(&device, &image, &[&written]),
            false => is_accepted(&device),
        }
        scene.end();
    }
}

#[test]
fn a_process_whose_main_thread_has_ended() {
    if !possible() {
        return;
    }
    let (mut scene, image, device) = Scene::with_loop();
    // `exit` ends the thread that calls it, and no other.
    let script = "import ctypes, os, sys, threading, time\n\
                  file = os.open(sys.argv[1], os.O_RDWR)\n\
                  def wait():\n\
                  \x20while open('/proc/self/stat').read().rsplit(')')[-1].split()[0] != 'Z': time.sleep(0.01)\n\
                  \x20print('ready', flush=True)\n\
                  \x20time.sleep(1000000)\n\
                  threading.Thread(target=wait).start()\n\
                  ctypes.CDLL(None).syscall({'x86_64': 60}.get(os.uname().machine, 93), 0)\n";
    let process = scene.start(Command::new("python3").args(["-c", script, &device]));
    is_refused(&device, &image, &[&format!("process {process} (python3) has {device} open for writing")]);
}

#[test]
fn a_bench_in_a_pid_namespace_is_no_writer_of_its_own() {
    if !possible() {
        return;
    }
    let (mut scene, image, device) = Scene::with_loop();
    let results = scene.path("results.json");
    let run_in = |options: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(options).args([
            TRIMTAB,
            "bench",
            &device,
            "--destroy-data",
            &device,
            "--json",
            &results,
        ]);
        command.args(["--allow-part", "--part", "latency", "--sizes", "4K", "--time", "1s"]);
        command
    };
    // The procfs of the outer namespace, in which this process has another number, and one of its own.
    let namespaces: [&[&str]; 2] = [&["--pid", "--fork"], &["--pid", "--fork", "--mount-proc"]];
    for options in namespaces {
        let output = run_in(options).output().unwrap();
        assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
        fs::remove_file(&results).unwrap();
    }
    let process = scene.shell(&["env"], &format!("exec 3<>{device}"));
    let written = format!("process {process} (sleep) has {device} open for writing");
    refuses(&mut run_in(namespaces[0]), &image, &[&format!("{device} is in use: {written}")]);
}

#[test]
fn processes_that_may_not_be_looked_at_are_counted() {
    if !possible() {
        return;
    }
    let (mut scene, _, device) = Scene::with_loop();
    scene.shell(&["env"], "exec 3</dev/null");
    for capabilities in ["-sys_ptrace", "-sys_ptrace,-checkpoint_restore,-sys_admin"] {
        let mut command = Command::new("setpriv");
        command.args([
            "--bounding-set",
            capabilities,
            TRIMTAB,
            "bench",
            &device,
            "--dry-run",
            "--allow-part",
        ]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let count = said
            .split_once("not known: what ")
            .and_then(|(_, line)| line.split(' ').next()?.parse::<u32>().ok());
        assert!(count.is_some_and(|count| count > 0), "{capabilities}: {said}");
    }
}

#[test]
fn hidden_processes_are_no_proof() {
    if !possible() {
        return;
    }
    let (mut scene, image, device) = Scene::with_loop();
    scene.shell(&["env"], &format!("exec 3<>{image}"));
    let mut command = Command::new("unshare");
    let line = "mount -t proc -o hidepid=ptraceable proc /proc && exec setpriv --bounding-set -sys_ptrace --inh-caps \
                -sys_ptrace \"$@\"";
    command.args(["--mount", "sh", "-c", line, "sh", TRIMTAB, "bench", &device, "--destroy-data", &device]);
    refuses(&mut command, &image, &["hides the processes of others", "hidepid"]);
}

#[test]
fn a_thread_with_descriptors_of_its_own() {
    if !possible() {
        return;
    }
    let (mut scene, image, device) = Scene::with_loop();
    // CLONE_FILES: the thread gets a table that the others don't share.
    let script = "import ctypes, os, sys, threading, time\n\
                  opened = threading.Event()\n\
                  def hold():\n\
                  \x20assert ctypes.CDLL(None).unshare(0x400) == 0\n\
                  \x20os.open(sys.argv[1], os.O_RDWR)\n\
                  \x20opened.set()\n\
                  \x20time.sleep(1000000)\n\
                  threading.Thread(target=hold).start()\n\
                  opened.wait()\n";
    let process = scene.python(script, &[&device]);
    is_refused(&device, &image, &[&format!("process {process} (python3) has {device} open for writing")]);
}

#[test]
fn a_file_that_is_registered_with_io_uring() {
    if !possible() {
        return;
    }
    let (mut scene, image, device) = Scene::with_loop();
    // io_uring_setup of 4 entries, and io_uring_register of one file (IORING_REGISTER_FILES).
    let script = "import ctypes, os, sys, time\n\
                  call = ctypes.CDLL(None).syscall\n\
                  file = os.open(sys.argv[1], os.O_RDWR)\n\
                  ring = call(425, 4, ctypes.create_string_buffer(120))\n\
                  assert ring >= 0 and call(427, ring, 2, (ctypes.c_int * 1)(file), 1) == 0\n\
                  os.close(file)\n";
    for path in [&device, &image] {
        let process = scene.python(script, &[path]);
        // A file is known by its path in the root of that process first.
        let root = if path == &image { format!("/proc/{process}/root") } else { String::new() };
        is_refused(
            &device,
            &image,
            &[&format!("process {process} (python3) has {root}{path} open for writing")],
        );
        scene.end();
    }
}
