//! Trace files, written and read back.

use std::path::Path;

use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
use trimtab_core::extent::Extent;
use trimtab_core::trace::{
    Comm, DeviceIndex, FsIndex, Kind, TraceDevice, TraceEvent, TraceFileSystem, TraceHeader, TraceSource,
};
use trimtab_core::units::{Bytes, Nanos};
use trimtab_trace::{Columns, TraceError, TraceFile, TraceWriter};

/// Two devices of one name, and two file systems at one mount point, one after the other.
fn header() -> TraceHeader {
    let device = |name: &str| TraceDevice { name: name.to_owned(), ..TraceDevice::default() };
    let fs = |kind: &str| TraceFileSystem {
        kind: kind.to_owned(),
        mount_point: "/mnt/a b".to_owned(),
        options: "rw,discard".to_owned(),
        source: "/dev/sda1".to_owned(),
    };
    TraceHeader {
        devices: vec![device("sda"), device("nvme0n1"), device("sda")],
        file_systems: vec![fs("ext4"), fs("xfs")],
        has_discards: true,
        ..TraceHeader::new("record")
    }
}

fn events() -> impl Strategy<Value = Vec<TraceEvent>> {
    let size = prop_oneof![Just(4096_u64), 0..1_u64 << 20, 0..1_u64 << 62];
    let latency = prop::option::of(prop_oneof![0..1000_u64, 0..1_u64 << 62]);
    let process = prop_oneof![Just(""), Just("fstrim"), Just("kworker/0:1"), Just("é")];
    let event = (
        (prop_oneof![0..2_u64, 0..1_000_000_u64, 0..1_u64 << 50], 0..3_u16, 0..9_usize),
        (0..1_u64 << 62, size, latency),
        (process, prop_oneof![Just(0_u16), any::<u16>()], prop::option::of(0..2_u16)),
    );
    prop::collection::vec(event, 0..600).prop_map(|events| {
        let mut now = 0;
        let of = |((after, device, kind), (start, length, latency), (process, error, fs))| {
            now += after;
            TraceEvent {
                at: Nanos(now),
                device: DeviceIndex(device),
                kind: Kind::ALL[kind],
                extent: Extent::at(Bytes(start), Bytes(length)),
                latency: Option::map(latency, Nanos),
                process: Comm::new(str::as_bytes(process)),
                error,
                fs: Option::map(fs, FsIndex),
            }
        };
        events.into_iter().map(of).collect()
    })
}

/// All events of the file, and the error that ended it.
fn read(path: &Path, columns: Columns) -> (Vec<TraceEvent>, Option<TraceError>) {
    let mut file = TraceFile::open(path).unwrap().with_columns(columns);
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        let read = file.next_batch(&mut batch);
        all.extend_from_slice(&batch);
        match read {
            Ok(()) if batch.is_empty() => return (all, None),
            Ok(()) => {}
            Err(error) => return (all, Some(error)),
        }
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read(events in events(), flush in 1..200_usize) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let mut writer = TraceWriter::create(&path, header()).unwrap();
        for piece in events.chunks(flush) {
            writer.write(piece).unwrap();
            writer.flush().unwrap();
        }
        writer.header_mut().lost = 7;
        writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        prop_assert_eq!(file.header(), &TraceHeader { lost: 7, ..header() });
        prop_assert_eq!(file.rows(), events.len() as u64);
        let (all, error) = read(&path, Columns::All);
        prop_assert_eq!(error.map(|error| error.to_string()), None);
        prop_assert_eq!(&all, &events);
        let bare = |event: &TraceEvent| TraceEvent { process: Comm::default(), error: 0, fs: None, ..*event };
        let bare: Vec<_> = events.iter().map(bare).collect();
        prop_assert_eq!(read(&path, Columns::Replay).0, bare);
    }
}
