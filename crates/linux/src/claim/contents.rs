//! Finds the contents of a block device: signatures of file systems, volumes and partition tables, as the
//! program wipefs knows them, and those that it passes over.

use std::fmt;
use std::fs::File;
use std::io;
use std::process::{Command, Output};
use std::time::Duration;

use rustix::fs::OFlags;
use serde::Deserialize;

use super::remains::remains;
use super::{ClaimError, Overrides};
use crate::block::BlockDevice;
use crate::limited;

/// Where wipefs is found: by the user's path, which may lack the last two.
const WIPEFS: [&str; 3] = ["wipefs", "/usr/sbin/wipefs", "/sbin/wipefs"];

/// The path by which wipefs opens its standard input.
const INPUT: &str = "/proc/self/fd/0";

/// How long a search of one device may take: it reads some hundred places, also of the slowest card.
const LOOK: Duration = Duration::from_secs(60);

/// A signature that was found on a device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Signature {
    /// Its format, such as `ext4`, `LVM2_member` or `gpt`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its class, such as `filesystem`, `raid`, `crypto` or `partition-table`.
    pub usage: Option<String>,
    /// The label.
    pub label: Option<String>,
    /// The UUID.
    pub uuid: Option<String>,
}

impl Signature {
    fn is_table(&self) -> bool {
        self.usage.as_deref() == Some("partition-table")
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(label) = &self.label {
            write!(f, " {label:?}")?;
        }
        self.uuid.iter().try_for_each(|uuid| write!(f, " (UUID {uuid})"))
    }
}

/// The output of wipefs.
#[derive(Deserialize)]
struct Answer {
    signatures: Vec<Signature>,
}

/// The contents of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contents {
    device: String,
    /// Its own signatures.
    signatures: Vec<Signature>,
    /// Its partitions by their paths, with what is on each; none where it is a partition itself.
    partitions: Vec<(String, Vec<Signature>)>,
}

impl Contents {
    /// Looks it up.
    pub(super) fn of(block: &BlockDevice) -> Result<Self, ClaimError> {
        let partitions = if block.disk().is_some() { Vec::new() } else { block.partitions()? };
        let name = |block: &BlockDevice| block.path().display().to_string();
        let on = |partition: &BlockDevice| Ok((name(partition), signatures(partition)?));
        Ok(Self {
            device: name(block),
            signatures: signatures(block)?,
            partitions: partitions.iter().map(on).collect::<Result<_, ClaimError>>()?,
        })
    }

    /// Says what of it is lost by work on the device, or why it may not be lost.
    pub(super) fn judge(&self, overrides: &Overrides) -> Result<Vec<String>, ClaimError> {
        let (tables, others): (Vec<_>, Vec<_>) = self.signatures.iter().partition(|found| found.is_table());
        let mut lost = Vec::new();
        let partitions = self.partitions.iter().map(|(partition, on)| match on.is_empty() {
            true => format!("partition {partition}"),
            false => format!("partition {partition} with {}", listed(on)),
        });
        let tables = tables.into_iter().map(|table| format!("a partition table {table}"));
        let divided: Vec<_> = partitions.chain(tables).collect();
        if !divided.is_empty() {
            let found = divided.join(", ");
            if !overrides.partitions {
                return Err(ClaimError::Partitions { device: self.device.clone(), found });
            }
            lost.push(format!("will be lost on {}: {found}", self.device));
        }
        if !others.is_empty() {
            let found = listed(others);
            if !overrides.signatures {
                return Err(ClaimError::Signatures { device: self.device.clone(), found });
            }
            lost.push(format!("will be lost on {}: {found}", self.device));
        }
        Ok(lost)
    }
}

fn listed<'a>(signatures: impl IntoIterator<Item = &'a Signature>) -> String {
    signatures.into_iter().map(Signature::to_string).collect::<Vec<_>>().join(", ")
}

/// The signatures on a device. It answered a read before this; one that fell silent since is not waited for.
fn signatures(block: &BlockDevice) -> Result<Vec<Signature>, ClaimError> {
    let device = block.clone();
    limited::ask_for(LOOK, move || look(&device)).answer().unwrap_or_else(|| {
        let source = io::ErrorKind::TimedOut.into();
        Err(ClaimError::Read { device: block.path().display().to_string(), source })
    })
}

/// Looks for the signatures on a device.
fn look(block: &BlockDevice) -> Result<Vec<Signature>, ClaimError> {
    let device = block.path().display().to_string();
    let unread = |source| ClaimError::Read { device: device.clone(), source };
    let node = block.open_node(OFlags::empty()).map_err(unread)?;
    let output = run(&node).map_err(|source| ClaimError::NoWipefs { device: device.clone(), source })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().replace(INPUT, &device);
        return Err(ClaimError::Wipefs { device, said });
    }
    let mut found = parse(&output.stdout);
    if let Ok(found) = &mut found {
        let others = remains(&node, block.size()?.0).map_err(unread)?;
        add(found, &others);
    }
    found.map_err(|source| ClaimError::WipefsAnswer { device, source })
}

/// Adds what else was found, but for copies of what is known already.
fn add(found: &mut Vec<Signature>, others: &[&'static str]) {
    for other in others {
        let copied = other.strip_prefix("a backup of ");
        let is_known = |signature: &Signature| {
            copied.is_some_and(|kind| {
                signature.kind == kind || (kind == "ext4" && signature.kind.starts_with("ext"))
            })
        };
        if !found.iter().any(is_known) {
            let usage = (copied == Some("gpt")).then(|| "partition-table".to_owned());
            found.push(Signature { kind: (*other).to_owned(), usage, label: None, uuid: None });
        }
    }
}

/// Runs wipefs on the device that `node` has open, whatever its path leads to by now.
fn run(node: &File) -> io::Result<Output> {
    let arguments = ["--no-act", "--json", "--output", "TYPE,USAGE,LABEL,UUID", "--", INPUT];
    let run = |program: &&str| Command::new(program).args(arguments).stdin(node.try_clone()?).output();
    let missing = |outcome: &io::Result<Output>| {
        outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    let mut tried = WIPEFS.iter().map(run);
    let found = tried.find(|outcome| !missing(outcome));
    found.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
}

/// Reads the signatures that wipefs printed; a table has several of the same.
fn parse(answer: &[u8]) -> Result<Vec<Signature>, serde_json::Error> {
    // Before util-linux 2.36 nothing is printed where nothing was found.
    if answer.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let mut found: Vec<Signature> = serde_json::from_slice::<Answer>(answer)?.signatures;
    let mut seen = Vec::new();
    found.retain(|signature| {
        !seen.contains(signature) && {
            seen.push(signature.clone());
            true
        }
    });
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXT4: &str = r#"{"signatures": [
        {"type": "ext4", "usage": "filesystem", "label": "my data", "uuid": "17a089ae"}
    ]}"#;
    const GPT: &str = r#"{"signatures": [
        {"type": "gpt", "usage": "partition-table", "label": null, "uuid": null},
        {"type": "gpt", "usage": "partition-table", "label": null, "uuid": null},
        {"type": "PMBR", "usage": "partition-table", "label": null, "uuid": null}
    ]}"#;

    fn contents(own: &str, partitions: &[(&str, &str)]) -> Contents {
        let parse = |answer: &str| parse(answer.as_bytes()).unwrap();
        let partitions = partitions.iter().map(|(path, on)| ((*path).to_owned(), parse(on)));
        Contents { device: "/dev/sdx".into(), signatures: parse(own), partitions: partitions.collect() }
    }

    #[test]
    fn nothing_costs_nothing() {
        for answer in ["", "\n", r#"{"signatures": []}"#] {
            assert_eq!(contents(answer, &[]).judge(&Overrides::default()).unwrap(), [""; 0]);
        }
        assert!(parse(b"no table").is_err());
    }

    #[test]
    fn copies_of_what_is_known_are_not_named() {
        let mut found = parse(EXT4.as_bytes()).unwrap();
        add(&mut found, &["a backup of ext4", "a backup of xfs", "a qcow2 image"]);
        let kinds: Vec<_> = found.iter().map(|signature| signature.kind.as_str()).collect();
        assert_eq!(kinds, ["ext4", "a backup of xfs", "a qcow2 image"]);
    }

    #[test]
    fn signatures_need_their_override() {
        let held = contents(EXT4, &[]);
        let others = Overrides { signatures: false, partitions: true, part: true };
        let expected = "/dev/sdx holds ext4 \"my data\" (UUID 17a089ae); this will be lost if you add \
                        --overwrite-signatures";
        assert_eq!(held.judge(&others).unwrap_err().to_string(), expected);
        let given_up = Overrides { signatures: true, ..Overrides::default() };
        let lost = "will be lost on /dev/sdx: ext4 \"my data\" (UUID 17a089ae)";
        assert_eq!(held.judge(&given_up).unwrap(), [lost]);
    }

    #[test]
    fn partitions_need_theirs() {
        let divided = contents(GPT, &[("/dev/sdx1", EXT4), ("/dev/sdx2", "")]);
        let others = Overrides { signatures: true, partitions: false, part: true };
        let found = "partition /dev/sdx1 with ext4 \"my data\" (UUID 17a089ae), partition /dev/sdx2, a partition \
                     table gpt, a partition table PMBR";
        let expected =
            format!("/dev/sdx has {found}; all of that will be lost if you add --overwrite-partitions");
        assert_eq!(divided.judge(&others).unwrap_err().to_string(), expected);
        let given_up = Overrides { partitions: true, ..Overrides::default() };
        assert_eq!(divided.judge(&given_up).unwrap(), [format!("will be lost on /dev/sdx: {found}")]);
    }

    #[test]
    fn one_override_is_not_the_other() {
        let both = contents(
            &format!("{}, {}", &EXT4[..EXT4.rfind(']').unwrap()], &GPT["{\"signatures\": [".len()..]),
            &[],
        );
        for overrides in [
            Overrides { signatures: true, ..Overrides::default() },
            Overrides { partitions: true, ..Overrides::default() },
        ] {
            assert!(both.judge(&overrides).is_err());
        }
        let all = Overrides { signatures: true, partitions: true, part: false };
        assert_eq!(both.judge(&all).unwrap().len(), 2);
    }
}
