//! What Douse puts into a program file for each method: its plan, behind a magic and a version.

use std::sync::Arc;

use douse_core::{Code, Error, Result};
use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::target::CudaTarget;
use crate::wire;

const MAGIC: &[u8; 8] = b"DOUSEPLN";

/// Grows with every change of what a plan holds: of any type that it is made of, the order of variants included.
pub const VERSION: u32 = 12;

/// A method as a program file holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Payload {
    /// What the method was lowered for: `cpu`, `sm_90`.
    pub targets: Vec<String>,
    /// Names, without `.ptd`, of the files of weights that stand beside the program; none: all is in the program.
    pub data_files: Vec<String>,
    pub plan: Arc<Plan>,
    /// Code for CUDA devices, an architecture each.
    pub cuda: Vec<CudaTarget>,
}

impl Payload {
    /// The bytes of the payload; equal payloads give equal bytes.
    ///
    /// # Errors
    /// `Internal` only.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(wire::to_bytes(self).map_err(|e| Error::internal(e.to_string()))?);
        Ok(bytes)
    }

    /// Reads a payload. The plan is not checked yet: see [`crate::check`].
    ///
    /// # Errors
    /// `DelegateInvalidCompatibility` for another version's payload, `InvalidProgram` for bytes that are none.
    pub fn decode(bytes: &[u8]) -> Result<Payload> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return Err(Error::invalid_program("the payload is not one of Douse's"));
        };
        let Some((version, body)) = rest.split_first_chunk::<4>() else {
            return Err(Error::invalid_program("the payload ends inside its header"));
        };
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            let age = if version < VERSION { "an older" } else { "a newer" };
            return Err(Error::new(
                Code::DelegateInvalidCompatibility,
                format!(
                    "the program was written by {age} version of Douse (plan version {version}, this one reads {VERSION}): \
                     lower it again"
                ),
            ));
        }
        wire::from_bytes(body).map_err(|e| Error::invalid_program(format!("a damaged plan: {e}")))
    }
}
