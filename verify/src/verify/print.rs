//! The result as JSON and as sentences.

use crate::report::{DeviceReport, Found, Report};
use core::fmt::{self, Write};
use inside::json::{Escaped, OrNull, Output, Quoted, Uuid, Why};
use inside::sys::cuda::{Answer, Cuda, Unanswered};

/// The name of a compute mode (`CUcomputemode` in cuda.h).
fn mode(mode: i32) -> &'static str {
    match mode {
        0 => "default",
        2 => "prohibited",
        3 => "exclusive-process",
        _ => "unknown",
    }
}

impl Report {
    /// Prints one JSON object in one line. docs/reference/claims.md describes the fields.
    pub(crate) fn json(&self, out: &mut Output) -> fmt::Result {
        write!(out, "{{\"version\":1,\"uid\":{},\"environment\":{{", self.uid)?;
        for (at, (name, value)) in self.environment.limits().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(out, "{comma}\"{}\":\"{}\"", Escaped(name), Escaped(value))?;
        }
        write!(
            out,
            "}},\"mps\":{{\"pipe_directory\":\"{}\",\"accepts\":{},\"errno\":{}}},",
            Escaped(self.pipe),
            self.control.is_ok(),
            OrNull(self.control.err())
        )?;
        match &self.cuda {
            Ok(found) => found.json(out)?,
            Err(text) => write!(out, "\"error\":\"{}\"", Escaped(text))?,
        }
        out.write_str("}\n")
    }

    /// Prints a sentence for each answer.
    pub(crate) fn text(&self, out: &mut Output) -> fmt::Result {
        match self.control {
            Ok(()) => writeln!(out, "MPS daemon: accepts connections in {}.", Escaped(self.pipe))?,
            Err(error) => writeln!(
                out,
                "MPS daemon: cannot be reached in {} (errno {error}).",
                Escaped(self.pipe)
            )?,
        }
        for (name, value) in self.environment.limits() {
            writeln!(out, "Set: {}={}", Escaped(name), Escaped(value))?;
        }
        match &self.cuda {
            Ok(found) => found.text(out),
            Err(text) => writeln!(out, "CUDA could not be asked: {}.", Escaped(text)),
        }
    }
}

impl Found {
    fn json(&self, out: &mut Output) -> fmt::Result {
        write!(
            out,
            "\"cuda\":{},\"device_count\":{}",
            OrNull(self.version.ok()),
            OrNull(self.count.ok())
        )?;
        if let Err(error) = self.count {
            write!(out, ",\"error\":\"{}\"", Why(&self.library, error))?;
        }
        out.write_str(",\"devices\":[")?;
        for (at, device) in self.devices.iter().flatten().enumerate() {
            out.write_str(if at > 0 { "," } else { "" })?;
            device.json(&self.library, out)?;
        }
        out.write_char(']')
    }

    fn text(&self, out: &mut Output) -> fmt::Result {
        match self.count {
            Err(error) => return writeln!(out, "CUDA could not be asked: {}.", Why(&self.library, error)),
            Ok(count) => writeln!(out, "Devices: {count}.")?,
        }
        self.devices
            .iter()
            .flatten()
            .try_for_each(|device| device.text(&self.library, out))
    }
}

impl DeviceReport {
    /// The questions without an answer, by the name of their field.
    fn unanswered(&self) -> impl Iterator<Item = (&'static str, Unanswered)> {
        let errors = [
            ("uuid", self.uuid.err()),
            ("compute_mode", self.compute_mode.err()),
            ("sms", self.sms.err()),
            ("mps", self.mps.err()),
            ("memory_free", self.memory.err()),
            ("largest_allocation", self.largest.and_then(Answer::err)),
        ];
        errors.into_iter().filter_map(|(name, error)| Some((name, error?)))
    }

    fn json(&self, cuda: &Cuda, out: &mut Output) -> fmt::Result {
        let mut buffer = [0; 128];
        let name = cuda.name(self.device, &mut buffer).ok();
        write!(out, "{{\"name\":{}", OrNull(name.map(|name| Quoted(Escaped(name)))))?;
        write!(
            out,
            ",\"uuid\":{}",
            OrNull(self.uuid.ok().map(|uuid| Quoted(Uuid(uuid))))
        )?;
        let compute_mode = self.compute_mode.ok().map(mode).map(Quoted);
        write!(out, ",\"compute_mode\":{}", OrNull(compute_mode))?;
        write!(out, ",\"sms\":{}", OrNull(self.sms.ok()))?;
        write!(out, ",\"mps\":{}", OrNull(self.mps.ok().map(|mps| mps != 0)))?;
        let (free, total) = self.memory.ok().unzip();
        write!(
            out,
            ",\"memory_free\":{},\"memory_total\":{}",
            OrNull(free),
            OrNull(total)
        )?;
        let largest = self.largest.and_then(Answer::ok);
        write!(out, ",\"largest_allocation\":{},\"not_asked\":{{", OrNull(largest))?;
        for (at, (field, error)) in self.unanswered().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(out, "{comma}\"{field}\":\"{}\"", Why(cuda, error))?;
        }
        out.write_str("}}")
    }

    fn text(&self, cuda: &Cuda, out: &mut Output) -> fmt::Result {
        const MIB: usize = 1 << 20;
        let mut buffer = [0; 128];
        let name = cuda
            .name(self.device, &mut buffer)
            .unwrap_or(b"a device without a name");
        writeln!(out, "Device: {}.", Escaped(name))?;
        if let Ok(uuid) = self.uuid {
            writeln!(out, "  UUID: {}.", Uuid(uuid))?;
        }
        if let Ok(compute_mode) = self.compute_mode {
            writeln!(out, "  Compute mode: {}.", mode(compute_mode))?;
        }
        if let Ok(sms) = self.sms {
            writeln!(out, "  SMs: {sms}.")?;
        }
        if let Ok((free, total)) = self.memory {
            writeln!(out, "  Memory: {} MiB are free, of {} MiB.", free / MIB, total / MIB)?;
        }
        if let Some(Ok(bytes)) = self.largest {
            writeln!(out, "  Largest allocation: {} MiB.", bytes / MIB)?;
        }
        match self.mps {
            Ok(0) => writeln!(out, "  This process does not run under MPS.")?,
            Ok(_) => writeln!(out, "  This process runs under MPS.")?,
            Err(_) => {}
        }
        for (field, error) in self.unanswered() {
            writeln!(out, "  Could not ask for {field}: {}.", Why(cuda, error))?;
        }
        Ok(())
    }
}
