//! The engine that runs guests in virtual time, and the processor time that it counts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The program that runs the guests of a comparison in virtual time. Results of two engines have different clocks and
/// do not belong in one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// QEMU, whose clock counts the processor's instructions.
    #[default]
    Qemu,
    /// User Mode Linux, in which computing takes no time and the kernel's work has a fixed cost.
    Uml {
        /// The cost.
        processor: ProcessorCosts,
    },
}

impl Engine {
    /// The name by which a user chooses it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Uml { .. } => "uml",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Qemu => f.write_str("QEMU"),
            Self::Uml { processor } => write!(f, "User Mode Linux, processor at fixed cost ({processor})"),
        }
    }
}

/// The processor time of a guest's kernel in User Mode Linux, in nanoseconds of virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessorCosts {
    /// Of a system call.
    pub syscall: u32,
    /// Of a page fault.
    pub fault: u32,
    /// Of a request to a block device.
    pub request: u32,
    /// Of a switch between threads.
    pub switch: u32,
    /// Of a KiB that a request reads or writes: once at the device, and once more where a process serves it (FUSE).
    pub data: u32,
    /// Of a KiB that is copied between the kernel and a process.
    pub copy: u32,
    /// Of a KiB of a file that enters the page cache.
    pub cache: u32,
}

impl ProcessorCosts {
    /// A processor that is infinitely fast.
    pub const NONE: Self = Self { syscall: 0, fault: 0, request: 0, switch: 0, data: 0, copy: 0, cache: 0 };
    /// The largest cost that is accepted: a millisecond.
    const MOST: u32 = 1_000_000;

    /// The names that a user gives, and the costs.
    fn named(&mut self) -> [(&'static str, &mut u32); 7] {
        [
            ("syscall", &mut self.syscall),
            ("fault", &mut self.fault),
            ("request", &mut self.request),
            ("switch", &mut self.switch),
            ("data", &mut self.data),
            ("copy", &mut self.copy),
            ("cache", &mut self.cache),
        ]
    }
}

impl Default for ProcessorCosts {
    /// Calibrated against QEMU; docs/compare.md says by which runs.
    fn default() -> Self {
        Self { syscall: 2000, fault: 1000, request: 25_000, switch: 3000, data: 550, copy: 300, cache: 2000 }
    }
}

impl fmt::Display for ProcessorCosts {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut costs = *self;
        let words = costs.named().map(|(name, cost)| format!("{name}={cost}"));
        f.write_str(&words.join(","))
    }
}

/// Costs that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is not a processor; use none, default, or nanoseconds such as {}, each at most 1000000; what is left \
     out keeps its default",
    ProcessorCosts::default()
)]
pub struct UnknownCosts {
    /// The rejected text.
    pub given: String,
}

impl FromStr for ProcessorCosts {
    type Err = UnknownCosts;

    fn from_str(given: &str) -> Result<Self, UnknownCosts> {
        let unknown = || UnknownCosts { given: given.to_owned() };
        let mut costs = match given {
            "none" => return Ok(Self::NONE),
            _ => Self::default(),
        };
        if given == "default" {
            return Ok(costs);
        }
        for word in given.split(',') {
            let (name, value) = word.split_once('=').ok_or_else(unknown)?;
            let value: u32 = value.parse().map_err(|_| unknown())?;
            let known = costs.named().into_iter().find(|(known, _)| *known == name);
            let (_, cost) = known.filter(|_| value <= Self::MOST).ok_or_else(unknown)?;
            *cost = value;
        }
        Ok(costs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_parsed_and_written_alike() {
        let costs =
            ProcessorCosts { syscall: 1, fault: 2, request: 3, switch: 4, data: 5, copy: 6, cache: 7 };
        assert_eq!(costs.to_string(), "syscall=1,fault=2,request=3,switch=4,data=5,copy=6,cache=7");
        assert_eq!(costs.to_string().parse(), Ok(costs));
        assert_eq!("none".parse(), Ok(ProcessorCosts::NONE));
        assert_eq!("default".parse(), Ok(ProcessorCosts::default()));
        assert_eq!("copy=7".parse(), Ok(ProcessorCosts { copy: 7, ..ProcessorCosts::default() }));
    }

    #[test]
    fn costs_that_make_no_sense_are_refused() {
        for given in ["", "1", "syscall", "syscall=", "syscall=-1", "sys=1", "copy=1000001", "copy=1;fault=2"]
        {
            let said = given.parse::<ProcessorCosts>().unwrap_err().to_string();
            assert!(
                said.starts_with(&format!("{given:?} is not a processor; use none, default, ")),
                "{said}"
            );
        }
    }

    #[test]
    fn documents_before_engines_are_of_qemu() {
        assert_eq!(Engine::default(), Engine::Qemu);
        assert_eq!(serde_json::to_string(&Engine::Qemu).unwrap(), r#""qemu""#);
        let uml = Engine::Uml { processor: ProcessorCosts::NONE };
        let text = serde_json::to_string(&uml).unwrap();
        assert_eq!(serde_json::from_str::<Engine>(&text).unwrap(), uml);
    }
}
