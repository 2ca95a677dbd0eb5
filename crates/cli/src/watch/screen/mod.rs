//! The screen of a terminal, redrawn every interval and key.

mod draw;
#[cfg(test)]
mod golden;
mod state;

use std::time::Duration;

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use trimtab_observe::watch::Session;

use super::POLL_INTERVAL;
use draw::{Palette, draw};
use state::{Next, State};

/// Shows the session until `over` returns true or the user quits. Restores the terminal, also after a panic.
pub fn run(session: &mut Session, interval: Duration, over: impl Fn(&Session) -> bool) -> Result<()> {
    let mut terminal = ratatui::try_init().context("cannot take the terminal")?;
    let shown = show(&mut terminal, session, interval, over);
    ratatui::try_restore().context("cannot give the terminal back")?;
    shown
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    session: &mut Session,
    interval: Duration,
    over: impl Fn(&Session) -> bool,
) -> Result<()> {
    let palette = if crate::colour() { Palette::COLOURS } else { Palette::PLAIN };
    let mut state = State::new(interval);
    let mut next = interval;
    let mut redraw = true;
    while !over(session) {
        if redraw {
            terminal.draw(|frame| draw(frame, &state, &palette)).context("cannot draw on the terminal")?;
            redraw = false;
        }
        session.follow(POLL_INTERVAL)?;
        if session.elapsed() >= next {
            while next <= session.elapsed() {
                next += interval;
            }
            let latest = session.interval();
            redraw |= state.update(latest, session.so_far());
        }
        while event::poll(Duration::ZERO).context("cannot read the keyboard")? {
            match event::read().context("cannot read the keyboard")? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match state.press(key) {
                    Next::Quit => return Ok(()),
                    Next::Redraw => redraw = true,
                },
                Event::Resize(..) => redraw = true,
                _ => {}
            }
        }
    }
    Ok(())
}
