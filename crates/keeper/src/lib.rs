//! Smart discards: what is pending on a mounted file system, when it is trimmed, and how that is
//! kept over restarts.
