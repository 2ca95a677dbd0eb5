//! The requests in flight, found by where they end.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::ops::Range;

use trimtab_core::hash::FastMap;
use trimtab_core::trace::{DeviceIndex, EventKind};

/// An address on a device, and what is done there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    at: u64,
    device_and_kind: u32,
}

impl Place {
    pub(super) const fn new(device: DeviceIndex, kind: EventKind, at: u64) -> Self {
        Self { at, device_and_kind: (device.0 as u32) << 8 | kind as u32 }
    }
}

/// The numbers of the rows of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) first: u64,
    pub(super) past: u64,
}

impl Numbers {
    pub(super) const fn all(self) -> Range<u64> {
        self.first..self.past
    }
}

/// Requests by their places; those of one place in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    oldest: FastMap<Place, Numbers>,
    /// Requests behind the oldest of their places.
    later: FastMap<Place, VecDeque<Numbers>>,
}

impl InFlight {
    pub(super) fn add(&mut self, place: Place, numbers: Numbers) {
        match self.oldest.entry(place) {
            Entry::Occupied(_) => self.later.entry(place).or_default().push_back(numbers),
            Entry::Vacant(vacant) => _ = vacant.insert(numbers),
        }
    }

    pub(super) fn oldest(&self, place: Place) -> Option<Numbers> {
        if self.oldest.is_empty() { None } else { self.oldest.get(&place).copied() }
    }

    /// Takes the oldest request of a place.
    pub(super) fn take(&mut self, place: Place) -> Option<Numbers> {
        if self.oldest.is_empty() {
            return None;
        }
        let taken = self.oldest.remove(&place)?;
        if let Some(later) = self.later.get_mut(&place) {
            if let Some(next) = later.pop_front() {
                self.oldest.insert(place, next);
            }
            if later.is_empty() {
                self.later.remove(&place);
            }
        }
        Some(taken)
    }

    /// Forgets the request whose last row has this number, if it is here: then it is the oldest of its place.
    pub(super) fn forget(&mut self, place: Place, last: u64) {
        if self.oldest(place).is_some_and(|numbers| numbers.past == last + 1) {
            self.take(place);
        }
    }

    pub(super) fn clear(&mut self) {
        self.oldest.clear();
        self.later.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn numbers(first: u64) -> Numbers {
        Numbers { first, past: first + 2 }
    }

    #[test]
    fn requests_of_one_place_leave_in_their_order() {
        let mut requests = InFlight::default();
        let place = |at| Place::new(DeviceIndex(3), EventKind::Discard, at);
        (0..3).for_each(|number| requests.add(place(8), numbers(number * 2)));
        requests.add(place(16), numbers(6));
        requests.forget(place(8), 0);
        requests.forget(place(8), 3);
        assert_eq!(requests.oldest(place(8)), Some(numbers(0)));
        requests.forget(place(8), 1);
        assert_eq!(requests.take(place(8)), Some(numbers(2)));
        assert_eq!(requests.take(place(8)), Some(numbers(4)));
        assert_eq!((requests.take(place(8)), requests.later.len()), (None, 0));
        requests.clear();
        assert_eq!(requests.take(place(16)), None);
    }
}
