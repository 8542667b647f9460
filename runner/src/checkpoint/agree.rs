//! Agreement of all ranks on success.

use super::CheckpointError;
use crate::transport::{ReduceOp, Transport, TransportError};

/// Success when every rank has it. Else rank 0 gets the error of the lowest rank that has one, the
/// others get to know that there is one. Collective.
pub(super) fn agree<T: Transport>(
    transport: &mut T,
    mine: Result<(), CheckpointError>,
) -> Result<Result<(), CheckpointError>, TransportError> {
    let mut failed = [f64::from(u8::from(mine.is_err()))];
    transport.all_reduce(&mut failed, ReduceOp::Max)?;
    if failed[0] == 0.0 {
        return Ok(Ok(()));
    }
    let text = mine.as_ref().map_or_else(ToString::to_string, |()| String::new());
    let Some(all) = transport.gather(text.as_bytes())? else {
        return Ok(Err(CheckpointError::Elsewhere));
    };
    if mine.is_err() {
        return Ok(mine);
    }
    let first = (0..).zip(&all).find(|(_, text)| !text.is_empty());
    Ok(Err(first.map_or(CheckpointError::Elsewhere, |(rank, text)| CheckpointError::OnRank {
        rank,
        why: String::from_utf8_lossy(text).into_owned(),
    })))
}
