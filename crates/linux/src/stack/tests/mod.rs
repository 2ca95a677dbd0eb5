//! Stacks of captured machines, and of this one.

mod captures;
mod devices;
mod fuzz;
mod layers;

use std::path::Path;

use crate::captured::Captured;
use crate::stack::{Stack, StackError};

/// The stack below `target`.
fn stack(machine: &Captured, target: &str) -> Stack {
    Stack::of(&machine.machine(), Path::new(target)).unwrap()
}

/// Why there is no stack below `target`.
fn refusal(machine: &Captured, target: &str) -> StackError {
    Stack::of(&machine.machine(), Path::new(target)).unwrap_err()
}

/// The layers' names, each with the sectors at which it starts on those below it.
fn picture(stack: &Stack) -> Vec<String> {
    let layers = stack.layers.iter().enumerate().map(|(at, layer)| {
        let below = layer.below.iter().map(|below| {
            assert!(below.layer > at, "a layer comes before those it lies on");
            let name = &stack.layers[below.layer].name;
            below.start.map_or(name.clone(), |start| format!("{name}+{}", start.get() / 512))
        });
        format!("{} on [{}]", layer.name, below.collect::<Vec<_>>().join(" "))
    });
    layers.collect()
}
