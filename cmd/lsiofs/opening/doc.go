// Package opening opens and closes datasets for the commands, at the position of a checkpoint if
// they are resumed. It shows the progress of indexing, attaches exit codes to errors of datasets and
// checkpoints, and describes damaged data that was left out. After Ctrl-C it does not wait for
// storage that does not answer.
package opening
