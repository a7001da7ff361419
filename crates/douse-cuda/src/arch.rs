//! Architectures of NVIDIA GPUs: what code is compiled for, and where it runs.

use std::fmt;
use std::str::FromStr;

use douse_core::{Error, Result};

/// What code is compiled for: `sm_90a` (a cubin), `compute_80` (PTX, which the driver compiles).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Architecture {
    pub form: Form,
    /// Compute capability: 9 and 0 of `sm_90`.
    pub major: u32,
    pub minor: u32,
    pub features: Features,
}

/// The form of compiled code; in the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    Cubin,
    Ptx,
    /// `soft`: for softgpu, a driver that runs kernels on the host's processor, for tests; `soft_90a`: with Hopper's own instructions.
    Soft,
}

/// Which instructions the code may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Features {
    /// Those that later architectures have too.
    Portable,
    /// `f`: those of the family, devices of the same major capability.
    Family,
    /// `a`: those of this one architecture.
    Specific,
}

/// The compute capability of softgpu's device, and what it gives itself where it is to have Hopper's own instructions.
const SOFT: (u32, u32) = (0, 0);
const SOFT_HOPPER: (u32, u32) = (0, 9);

impl Architecture {
    /// What is compiled for devices of that compute capability alone.
    pub fn of((major, minor): (u32, u32)) -> Architecture {
        let form = if [SOFT, SOFT_HOPPER].contains(&(major, minor)) { Form::Soft } else { Form::Cubin };
        // Hopper's own instructions multiply matrices nearly twice as fast as those that later architectures have too.
        let features = if (major, minor) == (9, 0) { Features::Specific } else { Features::Portable };
        Architecture { form, major, minor, features }
    }

    /// Whether a device of that compute capability runs the code (NVIDIA's rules: cubins run on the same major capability and
    /// no lower minor one, PTX on any that is not lower, what is specific to an architecture on it alone).
    pub fn runs_on(&self, (major, minor): (u32, u32)) -> bool {
        match (self.features, self.form) {
            (_, Form::Soft) => (self.major, self.minor) == (major, minor),
            (Features::Specific, _) => (self.major, self.minor) == (major, minor),
            (Features::Family, _) | (Features::Portable, Form::Cubin) => self.major == major && self.minor <= minor,
            (Features::Portable, Form::Ptx) => (self.major, self.minor) <= (major, minor),
        }
    }

    /// Whether launches of its kernels may overlap: there is an instruction with which a kernel waits for the one before it. (On softgpu, they
    /// follow each other anyway.)
    pub fn overlaps_launches(&self) -> bool {
        self.form == Form::Soft || self.major >= 9
    }

    /// Orders code that runs on a device by how well it fits: cubins first, then the nearest capability, then the most specific.
    pub fn preference(&self) -> impl Ord + use<> {
        (self.form, std::cmp::Reverse((self.major, self.minor)), std::cmp::Reverse(self.features))
    }
}

impl FromStr for Architecture {
    type Err = Error;

    fn from_str(text: &str) -> Result<Architecture> {
        match text {
            "soft" => return Ok(Architecture::of(SOFT)),
            "soft_90a" => return Ok(Architecture::of(SOFT_HOPPER)),
            _ => {}
        }
        let parse = || {
            let (form, rest) = match (text.strip_prefix("sm_"), text.strip_prefix("compute_")) {
                (Some(rest), _) => (Form::Cubin, rest),
                (_, Some(rest)) => (Form::Ptx, rest),
                _ => return None,
            };
            let (digits, features) = match (rest.strip_suffix('a'), rest.strip_suffix('f')) {
                (Some(digits), _) => (digits, Features::Specific),
                (_, Some(digits)) => (digits, Features::Family),
                _ => (rest, Features::Portable),
            };
            let number: u32 = digits.parse().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()))?;
            (10..1000).contains(&number).then_some(Architecture {
                form,
                major: number / 10,
                minor: number % 10,
                features,
            })
        };
        parse().ok_or_else(|| {
            Error::invalid_argument(format!(
                "{text:?} is no GPU architecture; expected, for example, sm_90 or compute_80"
            ))
        })
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self.form {
            Form::Cubin => "sm",
            Form::Ptx => "compute",
            Form::Soft if (self.major, self.minor) == SOFT_HOPPER => return f.write_str("soft_90a"),
            Form::Soft => return f.write_str("soft"),
        };
        let features = match self.features {
            Features::Portable => "",
            Features::Family => "f",
            Features::Specific => "a",
        };
        write!(f, "{form}_{}{}{features}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arch(text: &str) -> Architecture {
        text.parse().unwrap()
    }

    #[test]
    fn names_come_back_and_others_are_refused() {
        for name in ["sm_80", "sm_90a", "sm_100f", "sm_120", "compute_75", "compute_90a", "soft", "soft_90a"] {
            assert_eq!(arch(name).to_string(), name);
        }
        for name in ["", "cpu", "sm_", "sm_9", "sm_+90", "sm_9000", "sm90", "compute_x", "sm_90b"] {
            assert!(name.parse::<Architecture>().is_err(), "{name}");
        }
    }

    #[test]
    fn code_runs_where_nvidia_says() {
        let cases = [
            ("sm_80", (8, 0), true),
            ("sm_80", (8, 9), true),
            ("sm_86", (8, 0), false),
            ("sm_80", (9, 0), false),
            ("sm_90a", (9, 0), true),
            ("sm_100a", (10, 3), false),
            ("sm_100f", (10, 3), true),
            ("compute_80", (12, 0), true),
            ("compute_90", (8, 9), false),
            ("compute_90a", (10, 0), false),
            ("soft", (0, 0), true),
            ("soft", (9, 0), false),
            ("soft", (0, 9), false),
            ("soft_90a", (0, 9), true),
            ("compute_80", (0, 0), false),
        ];
        for (name, capability, runs) in cases {
            assert_eq!(arch(name).runs_on(capability), runs, "{name} on {capability:?}");
        }
    }

    #[test]
    fn the_best_code_comes_first() {
        let mut all = ["compute_80", "sm_80", "sm_90", "compute_90", "sm_90a"].map(arch);
        all.sort_by_key(Architecture::preference);
        assert_eq!(all.map(|a| a.to_string()), ["sm_90a", "sm_90", "sm_80", "compute_90", "compute_80"]);
    }
}
