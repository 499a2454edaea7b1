// Package fakedevice is a device without hardware, for tests: an arena of pages that nobody may touch except inside of its methods,
// so that Go code that follows a device pointer faults at once. Its backend opens the arena around each call and runs the Go backend
// on it, after it has checked that the operands are the arena's.
//
// It counts what is done to it, and fails where it is told to.
package fakedevice
