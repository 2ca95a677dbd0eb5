//! Trace files: our own, and readers for blktrace, fio and the published block traces.
