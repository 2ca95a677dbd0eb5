//! Drive profiles.

use pyo3::prelude::*;
use trimtab_core::profile::{Profile as DriveProfile, builtin};
use trimtab_sim::drive_profile::{age, load};

use crate::errors::raised;

/// A drive profile: how a drive behaves.
///
/// `name` is a built-in profile, or a file that ends in `.toml`.
#[pyclass(frozen, module = "trimtab")]
pub struct Profile {
    profile: DriveProfile,
    text: String,
}

#[pymethods]
impl Profile {
    #[new]
    fn new(name: &str) -> PyResult<Self> {
        let (profile, text) = load(name).map_err(|error| raised(&error))?;
        Ok(Self { profile, text })
    }

    /// Reads a profile from the text of a TOML file.
    #[staticmethod]
    fn parse(text: &str) -> PyResult<Self> {
        let profile = DriveProfile::parse(text, "the profile").map_err(|error| raised(&error))?;
        Ok(Self { profile, text: text.to_owned() })
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.profile.name
    }

    /// The drive that it describes.
    #[getter]
    fn model(&self) -> &str {
        &self.profile.model
    }

    /// Over-provisioning, (physical - logical) / logical: 0.07 is 7 %.
    #[getter]
    fn over_provisioning(&self) -> f64 {
        self.profile.geometry.over_provisioning.value
    }

    /// Its text, in TOML.
    #[getter]
    fn toml(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<trimtab.Profile {}>", self.profile.name)
    }
}

/// Returns the names of the built-in profiles.
#[pyfunction]
pub fn profiles() -> PyResult<Vec<String>> {
    let profiles = builtin().map_err(|error| raised(&error))?;
    Ok(profiles.into_iter().map(|profile| profile.name).collect())
}

/// A profile by name or file, or one that was loaded.
#[derive(FromPyObject)]
pub enum Drive<'py> {
    Loaded(PyRef<'py, Profile>),
    Named(String),
}

impl Drive<'_> {
    /// The profile and its text, of a drive that was overwritten at random if it is `aged`.
    pub fn load(&self, aged: bool) -> PyResult<(DriveProfile, String)> {
        let (profile, text) = match self {
            Self::Loaded(profile) => (profile.profile.clone(), profile.text.clone()),
            Self::Named(name) => load(name).map_err(|error| raised(&error))?,
        };
        if aged { age(profile, text).map_err(|error| raised(&error)) } else { Ok((profile, text)) }
    }
}
