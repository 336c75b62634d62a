#!/bin/sh
# What became of a job, in Snakemake's words: success, failed or running. Asks the controller, needs no accounting.
said=$(scontrol --oneliner show job "$1" 2>&1)
case "$said" in
  *" JobState=COMPLETED "*) echo success ;;
  *" JobState=PENDING "* | *" JobState=CONFIGURING "* | *" JobState=RUNNING "* | *" JobState=COMPLETING "* | \
    *" JobState=SUSPENDED "* | *" JobState=REQUEUED "* | *" JobState=STAGE_OUT "*) echo running ;;
  *" JobState="* | *"Invalid job id"*) echo failed ;;
  # the controller does not answer, for the moment
  *) echo running ;;
esac
